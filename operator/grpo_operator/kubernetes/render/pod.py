"""The pod template that reference and trainer share: restricted, read-only root, and what users set merged in.

Lists merge by name: an entry of the user's replaces a rendered one of the same name (mounts: of the same path), but
for the environment contract, whose names no manifest may set.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from grpo_api.v1alpha1 import GRPOJob, Model, Pod, Reference, Trainer

from grpo_operator.kubernetes import labels, names, places
from grpo_operator.kubernetes.settings import Settings

Entry = dict[str, Any]

HUB_DIR = f"{places.CACHE_DIR}/huggingface"
FS_GROUP = 10001
"""Group that owns the volumes, that of our images' user; spec.….pod.securityContext may set another."""


def pod_template(
    job: GRPOJob,
    settings: Settings,
    component: Literal["reference", "trainer"],
    image: str,
    container: Mapping[str, Any],
    *,
    environment: Iterable[Entry] = (),
    contract: Iterable[Entry] = (),
    security: Mapping[str, Any] | None = None,
    volumes: Iterable[Entry] = (),
    mounts: Iterable[Entry] = (),
    attempt: int | None = None,
    **spec: Any,
) -> Entry:
    """Return a pod template.

    Args:
        job: the job.
        settings: the installation's.
        component: which part of the job the pods are; its group in the spec says what the user set.
        image: where the spec names none.
        container: command, arguments, ports and probes of the only container.
        environment: further variables, which users may override.
        contract: environment that nobody can override.
        security: further fields of the pod's securityContext, which users may override.
        volumes: further volumes.
        mounts: further mounts.
        attempt: number of the attempt, for the label.
        spec: further fields of the pod's spec.
    """
    part: Reference | Trainer = job.spec.reference if component == "reference" else job.spec.trainer
    user = part.pod
    full = {
        "name": component,
        "image": part.image or image,
        "imagePullPolicy": part.image_pull_policy or settings.image_pull_policy,
        # A process that says nothing by itself (it was killed, or is the reference server) is quoted by its output.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _resources(part),
        "env": _merge("name", _environment(job), environment, _dump(job.spec.env), _dump(user.env), contract),
        "volumeMounts": _merge(
            "mountPath", [*_mounts(job), *mounts], _dump(job.spec.volume_mounts), _dump(user.volume_mounts)
        ),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        **container,
    }
    if env_from := _dump(job.spec.env_from) + _dump(user.env_from):
        full["envFrom"] = env_from
    pull_secrets = [{"name": secret} for secret in settings.image_pull_secrets]
    return {
        "metadata": {
            "labels": {**_own(user.labels), **labels.child(job, component, attempt)},
            **({"annotations": user.annotations} if user.annotations else {}),
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": _security(user, security or {}),
            "containers": [full],
            "volumes": _merge("name", [*_volumes(job), *volumes], _dump(job.spec.volumes), _dump(user.volumes)),
            **_placement(user),
            **(
                {"imagePullSecrets": merged}
                if (merged := _merge("name", pull_secrets, _dump(user.image_pull_secrets)))
                else {}
            ),
            **spec,
        },
    }


def _resources(part: Reference | Trainer) -> Entry:
    """Return the requests and limits; quantities as text, the way the API server writes them."""
    both = {"requests": part.resources.requests, "limits": part.resources.limits}
    return {kind: {name: str(value) for name, value in values.items()} for kind, values in both.items() if values}


def _environment(job: GRPOJob) -> list[Entry]:
    """Return the variables that users may override."""
    hub = job.spec.hub
    entries: list[Entry] = [
        {"name": "HOME", "value": places.HOME_DIR},
        {"name": "XDG_CACHE_HOME", "value": places.CACHE_DIR},
        {"name": "HF_HOME", "value": HUB_DIR},
    ]
    if hub.offline:
        entries.append({"name": "HF_HUB_OFFLINE", "value": "1"})
    if hub.token_secret is not None:
        key = {"name": hub.token_secret.name, "key": hub.token_secret.key}
        entries.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": key}})
    return entries


def _volumes(job: GRPOJob) -> list[Entry]:
    name = job.metadata.name
    volumes: list[Entry] = [
        {"name": "home", "emptyDir": {}},
        {"name": "cache", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "token", "secret": {"secretName": names.token(name), "defaultMode": 0o440}},
    ]
    if job.spec.hub.cache_volume is not None:
        volumes.append({"name": "hub", "persistentVolumeClaim": {"claimName": job.spec.hub.cache_volume}})
    return volumes


def _mounts(job: GRPOJob) -> list[Entry]:
    mounts: list[Entry] = [
        {"name": "home", "mountPath": places.HOME_DIR},
        {"name": "cache", "mountPath": places.CACHE_DIR},
        {"name": "tmp", "mountPath": places.TMP_DIR},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        {"name": "token", "mountPath": places.TOKEN_DIR, "readOnly": True},
    ]
    if job.spec.hub.cache_volume is not None:
        mounts.append({"name": "hub", "mountPath": HUB_DIR})
    return mounts


def _security(user: Pod, further: Mapping[str, Any]) -> Entry:
    restricted = {
        "runAsNonRoot": True,
        "fsGroup": FS_GROUP,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {**restricted, **further, **(_one(user.security_context) if user.security_context else {})}


def _placement(user: Pod) -> Entry:
    """Return where and how the pods are scheduled; fields that the user left out are left out."""
    fields: Entry = {
        "nodeSelector": user.node_selector,
        "tolerations": _dump(user.tolerations),
        "affinity": _one(user.affinity) if user.affinity else None,
        "topologySpreadConstraints": _dump(user.topology_spread_constraints),
        "priorityClassName": user.priority_class_name,
        "schedulerName": user.scheduler_name,
        "runtimeClassName": user.runtime_class_name,
        "serviceAccountName": user.service_account_name,
    }
    return {key: value for key, value in fields.items() if value}


def _own(user_labels: Mapping[str, str]) -> dict[str, str]:
    """Return the user's labels without those in our name space."""
    prefix = labels.JOB.partition("/")[0] + "/"
    return {key: value for key, value in user_labels.items() if not key.startswith(prefix)}


def _merge(key: str, *lists: Iterable[Entry]) -> list[Entry]:
    """Return the lists one after the other, a later entry in the place of an earlier one with the same key."""
    merged: dict[Any, Entry] = {}
    for entry in (entry for entries in lists for entry in entries):
        merged[entry[key]] = entry
    return list(merged.values())


def _dump(models: Iterable[Model]) -> list[Entry]:
    return [_one(model) for model in models]


def _one(model: Model) -> Entry:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
