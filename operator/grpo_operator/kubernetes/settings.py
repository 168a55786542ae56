"""What an installation sets: images, namespaces, ports. All by environment, as the chart's Deployment gives it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from grpo_api import env

from grpo_operator.state import Limits

PREFIX = "GRPO_OPERATOR_"
"""Of the environment's names: the field in upper case follows, such as GRPO_OPERATOR_TRAINER_IMAGE."""

PULL_POLICIES = ("Always", "IfNotPresent", "Never")


class SettingsError(ValueError):
    """A variable of the operator's environment has a value that cannot work."""


@dataclass(frozen=True)
class Settings:
    """The operator's settings. Times are in seconds."""

    namespaces: tuple[str, ...] = ()
    """Namespaces that are watched; empty: all."""
    namespace: str = ""
    """The operator's own namespace, for NetworkPolicies; empty: it runs outside the cluster."""
    trainer_image: str = "grpo/trainer:latest"
    """Where spec.trainer.image is absent."""
    reference_image: str = "grpo/refserver:latest"
    """Where spec.reference.image is absent."""
    vllm_image: str = "vllm/vllm-openai:v0.32.0"
    """The same with spec.reference.engine vllm."""
    sglang_image: str = "lmsysorg/sglang:v0.5.23"
    """The same with spec.reference.engine sglang."""
    image_pull_policy: str = "IfNotPresent"
    """Where the spec gives none."""
    image_pull_secrets: tuple[str, ...] = ()
    """Secrets, in the jobs' namespaces, added to all pods."""
    monitoring_namespace: str = ""
    """Namespace whose pods may read the jobs' metrics; empty: none."""
    reference_port: int = env.DEFAULT_REFERENCE_PORT
    """Port of the reference servers."""
    progress_port: int = env.DEFAULT_PROGRESS_PORT
    """Port of rank 0's progress."""
    progress_timeout: float = 2
    """Longest wait for an answer of rank 0."""
    workers: int = 8
    """Jobs reconciled at the same time."""
    resync: float = 60
    """Between two looks at all jobs, whatever was heard."""
    health_port: int = 8081
    """Port of /healthz."""
    metrics_port: int = 8082
    """Port of /metrics (Prometheus)."""
    limits: Limits = field(default_factory=Limits)
    """Waits of the plan: GRPO_OPERATOR_LIMITS_BACKOFF and so on."""

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> "Settings":
        """Read the settings from the environment.

        Raises:
            SettingsError: a value is not what its variable takes.
        """
        source = os.environ if environment is None else environment
        limits = _read(Limits(), f"{PREFIX}LIMITS_", source)
        settings: Settings = _read(Settings(limits=limits), PREFIX, source)
        if settings.image_pull_policy not in PULL_POLICIES:
            raise SettingsError(f"{PREFIX}IMAGE_PULL_POLICY must be one of {', '.join(PULL_POLICIES)}")
        return settings


def _read(default: Any, prefix: str, source: Mapping[str, str]) -> Any:
    """Return `default` (a dataclass) with every field replaced that the environment names."""
    values = {}
    for each in fields(default):
        name, present = prefix + each.name.upper(), getattr(default, each.name)
        if not source.get(name) or isinstance(present, Limits):
            values[each.name] = present
        else:
            values[each.name] = _parse(name, source[name], each.type)
    return type(default)(**values)


def _parse(name: str, text: str, kind: Any) -> Any:
    """Return the text as a value of a field's type."""
    if kind is str:
        return text
    if kind not in (int, float):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        value = kind(text)
    except ValueError:
        raise SettingsError(f"{name} is {text!r}: it must be a number") from None
    if value <= 0:
        raise SettingsError(f"{name} is {text!r}: it must be above 0")
    return value
