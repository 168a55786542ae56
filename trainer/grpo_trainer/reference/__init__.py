"""The reference model, as the trainer sees it: a server somewhere that scores completions."""

from grpo_trainer.reference.client import PendingLogprobs, ReferenceClient
from grpo_trainer.reference.info import ReferenceInfo
from grpo_trainer.reference.version import ReferenceVersion

__all__ = ["PendingLogprobs", "ReferenceClient", "ReferenceInfo", "ReferenceVersion"]
