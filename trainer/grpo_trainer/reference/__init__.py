"""The reference model, as the trainer sees it: a server somewhere that scores completions."""

from grpo_trainer.reference.check import check_agreement, check_info, is_half, is_same_model
from grpo_trainer.reference.client import PendingLogprobs, ReferenceClient
from grpo_trainer.reference.version import ReferenceVersion

__all__ = [
    "PendingLogprobs",
    "ReferenceClient",
    "ReferenceVersion",
    "check_agreement",
    "check_info",
    "is_half",
    "is_same_model",
]
