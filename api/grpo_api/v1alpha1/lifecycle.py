"""spec.checkpoint, spec.failurePolicy and spec.logging: what is kept, what happens on faults, what is told."""

from typing import Annotated, Literal

from pydantic import Field

from .base import Model, Rule, not_built
from .model import ObjectName

AccessMode = Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]


class ClaimTemplate(Model):
    """A PersistentVolumeClaim made for the job."""

    storage_class_name: Annotated[str, Field(max_length=253)] | None = None
    """StorageClass; absent: the cluster's default."""
    access_modes: Annotated[list[AccessMode], Field(min_length=1, max_length=3)] | None = None
    """Absent: ReadWriteMany where several pods use it (trainer.replicas above 1, or reference.sync), else
    ReadWriteOnce."""
    storage: Annotated[str, Field(min_length=1, max_length=32)] = "50Gi"
    """Size asked for."""


class CheckpointVolume(Model):
    """Where a run's files lie."""

    rules = (
        Rule(
            "!(has(self.claimName) && has(self.claimTemplate))",
            "checkpoint.volume has both claimName and claimTemplate: keep one of the two",
        ),
        Rule(
            "!(has(self.claimName) && self.retention == 'Delete')",
            "checkpoint.volume.retention Delete has no effect with claimName: your claims are never deleted; remove it",
        ),
    )

    claim_name: ObjectName | None = None
    """Name of an existing PersistentVolumeClaim."""
    claim_template: ClaimTemplate | None = None
    """A claim `<job>-output` made for the job; absent with no claimName: one with the defaults."""
    retention: Literal["Retain", "Delete"] = "Retain"
    """Whether a claim made for the job is deleted with it. A trained model is never deleted unasked."""


class Checkpoint(Model):
    """Checkpoints and the final model."""

    rules = (not_built("has(self.resumeFrom)", "checkpoint.resumeFrom", "remove the field"),)

    every_steps: Annotated[int, Field(ge=1)] = 50
    """Optimizer steps between checkpoints; one is written at the next boundary of a generation batch."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 2
    """Newest complete checkpoints that are kept."""
    volume: CheckpointVolume = Field(default_factory=CheckpointVolume)
    """Where a run's files lie."""
    resume_from: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Continue an older run's checkpoint. Not supported in this version."""
    save_final_model: bool = True
    """Save the trained model as a transformers folder at the end."""


class FailurePolicy(Model):
    """What happens on faults."""

    rules = (not_built("has(self.stallTimeoutSeconds)", "failurePolicy.stallTimeoutSeconds", "remove the field"),)

    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 3
    """New attempts after crashes before the job is Failed; evictions and preemptions do not count."""
    stall_timeout_seconds: Annotated[int, Field(ge=1)] | None = None
    """Seconds without a step after which an attempt is replaced. Not supported in this version."""


class Logging(Model):
    """What the trainer writes."""

    rules = (not_built("self.reportTo == 'wandb'", "logging.reportTo wandb", "use tensorboard or none"),)

    every_steps: Annotated[int, Field(ge=1)] = 1
    """Optimizer steps between log lines."""
    report_to: Literal["tensorboard", "wandb", "none"] = "tensorboard"
    """Where metrics go, besides metrics.jsonl."""
    completions: bool = False
    """Write sampled prompts, completions and rewards to metrics/completions.jsonl."""
