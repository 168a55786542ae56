"""What the trainer tells: progress while it runs, and the reason it ends with."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class _Message(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class Progress(_Message):
    """What rank 0 answers on GET /progress. A number that is not known (or not finite) is null, never NaN."""

    attempt: int
    """The attempt that answers (GRPO_ATTEMPT), so that an older one is not taken for the present one."""
    phase: str
    """What the trainer is doing: starting, generating, rewarding, training, syncing (the
    reference is being replaced), checkpointing, finished."""
    step: int
    """Optimizer steps done."""
    total_steps: int | None = None
    """Optimizer steps to do; null until the dataset is read."""
    reward: float | None = None
    """Mean weighted reward of the last generation batch."""
    kl: float | None = None
    """Mean KL estimate (k3, nats per token) of the last step."""
    loss: float | None = None
    """Loss of the last step, mean over ranks."""
    tokens_per_second: float | None = None
    """Completion tokens trained on per second of wall clock, all ranks."""
    last_step_time: datetime | None = None
    """When the last optimizer step ended (UTC)."""
    reference_version: str | None = None
    """Version of the reference that the trainer asks for; null where none is used, or it is an external one."""
    checkpoint_step: int | None = None
    """Step of the newest complete checkpoint."""
    eta_seconds: float | None = None
    """Estimated seconds until the last step."""
    model_path: str | None = None
    """Where the final model lies, once saved."""


class Termination(_Message):
    """The JSON reason in the termination log (Kubernetes keeps at most 4096 bytes of it)."""

    reason: str
    """CamelCase word: Succeeded, ConfigurationError, DatasetError, RewardError, PeerLost, ReferenceLost, Crashed…"""
    message: str
    """One sentence for people: what happened and what to do."""
    rank: int | None = None
    """Global rank that speaks; null for the launcher."""
    exit_code: int | None = None
    """The exit code this process ends with (grpo_api.exit_codes)."""
    step: int | None = None
    """Optimizer steps done."""
    model_path: str | None = None
    """Where the final model lies (on success)."""

    def to_log(self) -> str:
        """Return the JSON text, the message cut so that the whole stays below Kubernetes' 4096 bytes."""
        text = self.model_dump_json(by_alias=True, exclude_none=True)
        while len(text.encode()) > 4000:
            keep = max(0, len(self.message) - (len(text.encode()) - 4000) - 1)
            self.message = self.message[:keep] + "…"
            text = self.model_dump_json(by_alias=True, exclude_none=True)
        return text
