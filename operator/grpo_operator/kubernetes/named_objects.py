"""The Secrets, ConfigMaps and claims that a spec names, and without which its pods could not start."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from grpo_api.v1alpha1 import EnvFromSource, EnvVar, GRPOJob, Pod, Spec, Volume

from grpo_operator import reasons
from grpo_operator.state import Fault

from . import kinds
from .kinds import Kind

REASONS = {
    kinds.CLAIM: reasons.MISSING_CLAIM,
    kinds.CONFIG_MAP: reasons.MISSING_CONFIG_MAP,
    kinds.SECRET: reasons.MISSING_SECRET,
}


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_MAX_SUBDOMAIN = 253


def is_valid_name(name: str) -> bool:
    """Whether an object can have this name: a DNS-1123 subdomain (Kubernetes' "Object Names and IDs")."""
    return len(name) <= _MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(name) is not None


@dataclass(frozen=True)
class NamedObject:
    """An object of the job's namespace, and the field that names it."""

    kind: Kind
    name: str
    field: str

    def missing(self) -> Fault:
        """Return what it means that the object does not exist, or cannot."""
        if not is_valid_name(self.name):
            return Fault(REASONS[self.kind], f"{self.field}: {self.name!r} is no valid name of a {self.kind.kind}")
        return Fault(REASONS[self.kind], f"{self.kind.kind} {self.name}, named by {self.field}, does not exist")


def named_objects(job: GRPOJob) -> list[NamedObject]:
    """Return the objects the spec names, each once. Those marked optional do not count, nor do pull secrets: pods
    start without them."""
    spec = job.spec
    found: list[NamedObject] = []
    if spec.checkpoint.volume.claim_name is not None:
        found.append(NamedObject(kinds.CLAIM, spec.checkpoint.volume.claim_name, "checkpoint.volume.claimName"))
    if spec.hub.cache_volume is not None:
        found.append(NamedObject(kinds.CLAIM, spec.hub.cache_volume, "hub.cacheVolume"))
    if spec.hub.token_secret is not None:
        found.append(NamedObject(kinds.SECRET, spec.hub.token_secret.name, "hub.tokenSecret"))
    if spec.rewards.code_from is not None:
        found.append(NamedObject(kinds.CONFIG_MAP, spec.rewards.code_from.config_map, "rewards.codeFrom"))
    parts: dict[str, Spec | Pod] = {"": spec, "trainer.pod.": spec.trainer.pod}
    if spec.runs_reference:
        parts["reference.pod."] = spec.reference.pod
    for prefix, part in parts.items():
        found += _of_volumes(f"{prefix}volumes", part.volumes)
        found += _of_env(f"{prefix}env", part.env)
        found += _of_env_from(f"{prefix}envFrom", part.env_from)
    unique = {(each.kind, each.name): each for each in reversed(found)}
    return list(reversed(unique.values()))


def _of_volumes(field: str, volumes: Iterable[Volume]) -> Iterable[NamedObject]:
    for volume in volumes:
        yield from _reference(kinds.CLAIM, volume.persistent_volume_claim, field, "claimName")
        yield from _reference(kinds.SECRET, volume.secret, field, "secretName")
        yield from _reference(kinds.CONFIG_MAP, volume.config_map, field)


def _of_env(field: str, variables: Iterable[EnvVar]) -> Iterable[NamedObject]:
    for variable in variables:
        source = variable.value_from
        if source is not None:
            yield from _reference(kinds.SECRET, source.secret_key_ref, field)
            yield from _reference(kinds.CONFIG_MAP, source.config_map_key_ref, field)


def _of_env_from(field: str, sources: Iterable[EnvFromSource]) -> Iterable[NamedObject]:
    for source in sources:
        yield from _reference(kinds.SECRET, source.secret_ref, field)
        yield from _reference(kinds.CONFIG_MAP, source.config_map_ref, field)


def _reference(kind: Kind, source: dict[str, Any] | None, field: str, key: str = "name") -> Iterable[NamedObject]:
    if source and isinstance(source.get(key), str) and source[key] and not source.get("optional"):
        yield NamedObject(kind, source[key], field)
