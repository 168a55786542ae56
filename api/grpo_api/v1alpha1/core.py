"""The parts of core/v1 that users may set on pods: their fields by name, so that a misspelled one is refused here.

What lies deeper (the source of a volume, a node affinity) is passed on as it came; the API server judges it when
the pod is made, and its answer becomes the job's reason. Field names are those of Kubernetes 1.36.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from .base import Model

Free = dict[str, Any]
Name = Annotated[str, Field(min_length=1, max_length=253)]
T = TypeVar("T", bound=Model)


def _unique(key: str) -> Callable[[list[T]], list[T]]:
    def check(items: list[T]) -> list[T]:
        seen: set[Any] = set()
        for item in items:
            value = getattr(item, key)
            if value in seen:
                raise ValueError(f"Duplicate value: {value!r} is there twice")
            seen.add(value)
        return items

    return check


def _list_map(key: str) -> dict[str, Any]:
    """Return the schema's words for a list whose entries are told apart by one field."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class EnvVarSource(Model):
    """Where a variable's value comes from (core/v1 EnvVarSource): one of these."""

    config_map_key_ref: Free | None = None
    """A key of a ConfigMap."""
    field_ref: Free | None = None
    """A field of the pod."""
    file_key_ref: Free | None = None
    """A key of an env file in a volume."""
    resource_field_ref: Free | None = None
    """A request or limit of the container."""
    secret_key_ref: Free | None = None
    """A key of a Secret."""


class EnvVar(Model):
    """One environment variable (core/v1 EnvVar)."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the variable; those of the environment contract are reserved."""
    value: Annotated[str, Field(max_length=32768)] | None = None
    """Its value; or give `valueFrom`."""
    value_from: EnvVarSource | None = None
    """Where its value comes from."""


class EnvFromSource(Model):
    """All keys of a ConfigMap or a Secret as variables (core/v1 EnvFromSource)."""

    prefix: Annotated[str, Field(max_length=253)] | None = None
    """Put before each name."""
    config_map_ref: Free | None = None
    """The ConfigMap: `{name: …, optional: …}`."""
    secret_ref: Free | None = None
    """The Secret: `{name: …, optional: …}`."""


class Volume(Model):
    """One volume (core/v1 Volume): a name and one source."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name, as used by `volumeMounts`."""
    config_map: Free | None = None
    """Files from a ConfigMap."""
    csi: Free | None = None
    """A volume of a CSI driver, alive as long as the pod."""
    downward_api: Annotated[Free | None, Field(alias="downwardAPI")] = None
    """Files about the pod."""
    empty_dir: Free | None = None
    """An empty folder, alive as long as the pod."""
    ephemeral: Free | None = None
    """A claim made for the pod."""
    fc: Free | None = None
    """A Fibre Channel disk."""
    host_path: Free | None = None
    """A folder of the node; the restricted Pod Security Standard refuses it."""
    image: Free | None = None
    """An OCI image or artifact, mounted read-only."""
    iscsi: Free | None = None
    """An iSCSI disk."""
    nfs: Free | None = None
    """A share of an NFS server."""
    persistent_volume_claim: Free | None = None
    """A claim in the job's namespace: `{claimName: …}`."""
    projected: Free | None = None
    """Several sources in one folder."""
    secret: Free | None = None
    """Files from a Secret."""


class VolumeMount(Model):
    """One mount (core/v1 VolumeMount)."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the volume."""
    mount_path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Absolute path inside the container."""
    mount_propagation: Annotated[str, Field(max_length=63)] | None = None
    """How mounts spread between node and container."""
    read_only: bool | None = None
    """Mount it read-only."""
    recursive_read_only: Annotated[str, Field(max_length=63)] | None = None
    """Whether mounts below are read-only too."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """Path inside the volume."""
    sub_path_expr: Annotated[str, Field(max_length=1024)] | None = None
    """The same with `$(VARIABLE)`s."""


class Toleration(Model):
    """One taint the pods tolerate (core/v1 Toleration)."""

    key: Annotated[str, Field(max_length=317)] | None = None
    """Key of the taint; absent: all."""
    operator: Annotated[str, Field(max_length=63)] | None = None
    """Exists or Equal."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Value of the taint."""
    effect: Annotated[str, Field(max_length=63)] | None = None
    """NoSchedule, PreferNoSchedule or NoExecute; absent: all."""
    toleration_seconds: int | None = None
    """Seconds until a pod is evicted all the same."""


class TopologySpreadConstraint(Model):
    """How pods spread over the cluster (core/v1 TopologySpreadConstraint)."""

    topology_key: Annotated[str, Field(min_length=1, max_length=317)]
    """Node label whose values are the places."""
    max_skew: Annotated[int, Field(ge=1)]
    """Most pods one place may have more than another."""
    when_unsatisfiable: Annotated[str, Field(min_length=1, max_length=63)]
    """DoNotSchedule or ScheduleAnyway."""
    label_selector: Free | None = None
    """Which pods are counted."""
    match_label_keys: Annotated[list[Name], Field(max_length=16)] | None = None
    """Labels of the pod that are added to the selector."""
    min_domains: int | None = None
    """Fewest places."""
    node_affinity_policy: Annotated[str, Field(max_length=63)] | None = None
    """Whether node affinity is honoured in the count."""
    node_taints_policy: Annotated[str, Field(max_length=63)] | None = None
    """Whether taints are honoured in the count."""


class Affinity(Model):
    """Scheduling affinity (core/v1 Affinity)."""

    node_affinity: Free | None = None
    """Which nodes."""
    pod_affinity: Free | None = None
    """Near which pods."""
    pod_anti_affinity: Free | None = None
    """Away from which pods."""


class LocalObjectReference(Model):
    """An object of the job's namespace by name (core/v1 LocalObjectReference)."""

    name: Name
    """Its name."""


class PodSecurityContext(Model):
    """Merged over the pod's restricted security context (core/v1 PodSecurityContext)."""

    run_as_user: int | None = None
    """User id of the processes."""
    run_as_group: int | None = None
    """Group id of the processes."""
    run_as_non_root: bool | None = None
    """Refuse to run as root; the restricted Pod Security Standard asks for true."""
    fs_group: int | None = None
    """Group that owns the volumes."""
    fs_group_change_policy: Annotated[str, Field(max_length=63)] | None = None
    """OnRootMismatch or Always."""
    supplemental_groups: Annotated[list[int], Field(max_length=64)] | None = None
    """Further groups of the processes."""
    supplemental_groups_policy: Annotated[str, Field(max_length=63)] | None = None
    """Merge or Strict."""
    seccomp_profile: Free | None = None
    """Seccomp profile."""
    se_linux_options: Free | None = None
    """SELinux labels."""
    se_linux_change_policy: Annotated[str, Field(max_length=63)] | None = None
    """How volumes get their SELinux labels."""
    app_armor_profile: Free | None = None
    """AppArmor profile."""
    sysctls: Annotated[list[Free], Field(max_length=32)] | None = None
    """Kernel parameters of the pod."""


EnvList = Annotated[
    list[EnvVar], AfterValidator(_unique("name")), Field(max_length=64, json_schema_extra=_list_map("name"))
]
EnvFromList = Annotated[list[EnvFromSource], Field(max_length=16)]
VolumeList = Annotated[
    list[Volume], AfterValidator(_unique("name")), Field(max_length=32, json_schema_extra=_list_map("name"))
]
VolumeMountList = Annotated[
    list[VolumeMount],
    AfterValidator(_unique("mount_path")),
    Field(max_length=32, json_schema_extra=_list_map("mountPath")),
]
ImagePullSecretList = Annotated[
    list[LocalObjectReference],
    AfterValidator(_unique("name")),
    Field(max_length=8, json_schema_extra=_list_map("name")),
]
