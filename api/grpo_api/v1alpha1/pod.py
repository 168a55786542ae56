"""What users set on pods. Typed and bounded, so that CEL can read it; lists merge by name with what is rendered."""

from typing import Annotated

from pydantic import Field

from grpo_api import env

from .base import Model, Rule
from .core import (
    Affinity,
    EnvFromList,
    EnvList,
    ImagePullSecretList,
    PodSecurityContext,
    Toleration,
    TopologySpreadConstraint,
    VolumeList,
    VolumeMountList,
)

Labels = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=64)]
Quantity = int | str
Quantities = Annotated[dict[str, Quantity], Field(max_length=16)]


def reserved_env(path: str, field: str) -> Rule:
    """Return the rule that keeps a list of variables off the reserved names."""
    names = ", ".join(f"'{name}'" for name in env.RESERVED)
    return Rule(
        f"{path}.all(e, !(e.name in [{names}]))",
        f"{field} sets a reserved name ({', '.join(env.RESERVED)}): remove it, the operator sets it",
    )


RESERVED_VOLUMES = ("code", "config", "hub", "output", "token")
"""Names of volumes that hold a run's files and settings: one of the user's in their place would lose the model."""
RESERVED_MOUNTS = ("/output", "/run/grpo")
"""Where they are mounted."""


def reserved_volumes(path: str, field: str) -> Rule:
    """Return the rule that keeps a list of volumes off the reserved names."""
    names = ", ".join(f"'{name}'" for name in RESERVED_VOLUMES)
    return Rule(
        f"{path}.all(v, !(v.name in [{names}]))",
        f"{field} has a volume of a reserved name ({', '.join(RESERVED_VOLUMES)}): give it another name",
    )


def reserved_mounts(path: str, field: str) -> Rule:
    """Return the rule that keeps a list of mounts off the reserved paths."""
    free = " && ".join(f"m.mountPath != '{path}' && !m.mountPath.startsWith('{path}/')" for path in RESERVED_MOUNTS)
    return Rule(
        f"{path}.all(m, {free})",
        f"{field} mounts over a reserved path ({', '.join(RESERVED_MOUNTS)}): choose another path",
    )


_GPU = "nvidia.com/gpu"


class Resources(Model):
    """Compute resources of a container (core/v1 ResourceRequirements)."""

    rules = (
        Rule(
            f"!('{_GPU}' in self.requests) || ('{_GPU}' in self.limits && "
            f"string(self.requests['{_GPU}']) == string(self.limits['{_GPU}']))",
            f"resources.requests {_GPU} must equal the limit {_GPU}, as Kubernetes asks of GPUs: leave the request "
            "out, or set the limit to it",
        ),
    )

    requests: Quantities = Field(default_factory=dict)
    """What the scheduler reserves, such as `{cpu: 4, memory: 32Gi}`."""
    limits: Quantities = Field(default_factory=dict)
    """What the container may use at most; GPUs are asked for here, such as `{nvidia.com/gpu: 8}`."""


def unset(path: str, model: type[Model]) -> str:
    """Return the condition that no field is set of a model whose fields are lists, maps, or absent by default."""
    return " && ".join(
        f"!has({path}.{field.alias})" if field.default is None else f"size({path}.{field.alias}) == 0"
        for field in model.model_fields.values()
    )


class Pod(Model):
    """What users may set on the pods of one part."""

    rules = (
        reserved_env("self.env", "pod.env"),
        reserved_volumes("self.volumes", "pod.volumes"),
        reserved_mounts("self.volumeMounts", "pod.volumeMounts"),
    )

    labels: Labels = Field(default_factory=dict)
    """Labels added to the pods; `grpo.dev/*` stays ours."""
    annotations: Labels = Field(default_factory=dict)
    """Annotations added to the pods."""
    node_selector: Labels = Field(default_factory=dict)
    """Node labels a pod asks for."""
    tolerations: Annotated[list[Toleration], Field(max_length=32)] = Field(default_factory=list)
    """Taints the pods tolerate."""
    affinity: Affinity | None = None
    """Scheduling affinity."""
    topology_spread_constraints: Annotated[list[TopologySpreadConstraint], Field(max_length=8)] = Field(
        default_factory=list
    )
    """How pods spread over the cluster."""
    priority_class_name: Annotated[str, Field(max_length=253)] | None = None
    """Name of a PriorityClass."""
    scheduler_name: Annotated[str, Field(max_length=253)] | None = None
    """Name of the scheduler, where it is not the cluster's default."""
    runtime_class_name: Annotated[str, Field(max_length=253)] | None = None
    """Name of a RuntimeClass, such as `nvidia`."""
    service_account_name: Annotated[str, Field(max_length=253)] | None = None
    """ServiceAccount of the pods; its token is not mounted."""
    image_pull_secrets: ImagePullSecretList = Field(default_factory=list)
    """Secrets for pulling images, such as `[{name: registry}]`."""
    volumes: VolumeList = Field(default_factory=list)
    """Volumes added to the pods."""
    volume_mounts: VolumeMountList = Field(default_factory=list)
    """Mounts added to the container."""
    env: EnvList = Field(default_factory=list)
    """Environment added to the container."""
    env_from: EnvFromList = Field(default_factory=list)
    """Environment from ConfigMaps and Secrets."""
    security_context: PodSecurityContext | None = None
    """Merged over the pod's restricted security context."""
