"""status of a GRPOJob: what `kubectl get` and `kubectl describe` show."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from .base import Model

Time = Annotated[datetime, Field(strict=False)]
"""Written as text (RFC 3339)."""

Phase = Literal["Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"]
Cause = Literal["Disruption", "Permanent", "Crash", "Retry", "Suspend"]
ConditionType = Literal["Accepted", "ReferenceReady", "TrainerReady", "Suspended", "Stalled", "Succeeded", "Failed"]


class Condition(Model):
    """One aspect of the state (meta/v1 Condition)."""

    type: ConditionType
    """Which aspect."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(max_length=128)]
    """CamelCase word; each is explained in docs/status.md."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """One sentence for people."""
    last_transition_time: Time
    """When `status` last changed."""
    observed_generation: int | None = None
    """metadata.generation this was computed for."""


class ReferenceStatus(Model):
    """The reference server."""

    url: str | None = None
    """Base URL the trainer uses."""
    version: str | None = None
    """Version of the model that the trainer asks for: `base`, then `step-<n>` with reference.sync."""
    ready_replicas: int = 0
    """Pods that are ready."""


class LastTermination(Model):
    """How the newest attempt that has ended came to its end."""

    attempt: int
    """Number of that attempt."""
    cause: Cause
    """What the next attempt counts as: Disruption as a disruption, Crash and Retry as a restart, Suspend as neither;
    Permanent fails the job."""
    reason: Annotated[str, Field(max_length=128)]
    """CamelCase word, the trainer's own where it gave one; each is explained in docs/status.md."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """One sentence for people."""
    time: Time
    """When its end was first seen; the back-off counts from here."""


class TrainerStatus(Model):
    """The trainer's present attempt."""

    attempt: int = 0
    """Number of the attempt, from 0."""
    ready: int = 0
    """Pods that run."""
    desired: int = 0
    """Pods that should run."""
    last_termination: LastTermination | None = None
    """How the newest attempt that has ended came to its end."""


class ProgressStatus(Model):
    """How far training is; written at most every 15 s."""

    step: int = 0
    """Optimizer steps done."""
    total_steps: int | None = None
    """Optimizer steps to do."""
    steps: str | None = None
    """The two as text: `37/200`."""
    reward: float | None = None
    """Mean reward of the last generation batch."""
    kl: float | None = None
    """Mean KL against the reference, nats per token."""
    loss: float | None = None
    """Loss of the last step."""
    tokens_per_second: float | None = None
    """Completion tokens per second, all ranks."""
    last_step_time: Time | None = None
    """When the last step ended."""
    checkpoint_step: int | None = None
    """Step of the newest complete checkpoint."""
    eta_seconds: float | None = None
    """Estimated seconds to the end."""
    last_update_time: Time | None = None
    """When these numbers were taken."""


class Status(Model):
    """What the operator has seen and done."""

    phase: Phase | None = None
    """The state in one word."""
    reason: Annotated[str, Field(max_length=128)] | None = None
    """Why, in one CamelCase word; each is explained in docs/status.md."""
    message: Annotated[str, Field(max_length=2048)] | None = None
    """Why, in one sentence."""
    conditions: Annotated[list[Condition], Field(max_length=16)] = Field(default_factory=list)
    """The state, aspect by aspect."""
    observed_generation: int | None = None
    """metadata.generation this status was computed for."""
    start_time: Time | None = None
    """When the job was first acted on."""
    completion_time: Time | None = None
    """When it ended."""
    restarts: int = 0
    """New attempts after crashes."""
    disruptions: int = 0
    """New attempts after evictions, preemptions and lost nodes."""
    reference: ReferenceStatus | None = None
    """The reference server."""
    trainer: TrainerStatus | None = None
    """The trainer's present attempt."""
    progress: ProgressStatus | None = None
    """How far training is."""
    model_path: str | None = None
    """Where the trained model lies in the volume, once saved."""
