"""Do trainer and reference server speak of the same model? Looked at before training, and at the first batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from grpo_api.v1alpha1 import Spec
from torch import Tensor

from grpo_trainer.errors import ConfigurationError

logger = logging.getLogger(__name__)

ROUNDING, HALF_ROUNDING = 1e-3, 0.1
"""Mean difference of log-probabilities, in nats per token, that rounding explains: in fp32; where one is in half."""
ANOTHER_MODEL = 0.5
"""Mean difference that only other weights, or other tokens, explain."""

_CAUSES = (
    "Usual causes: the weights in the volume were changed after the server had read them, another dtype or "
    "attnImplementation, another temperature, a chat or adapter checkpoint under the same name"
)


def check_info(info: Mapping[str, Any], *, vocabulary_size: int, tokenizer_hash: str, dtype: str) -> None:
    """Compare what the server tells with the policy.

    Raises:
        ConfigurationError: ids would not mean the same tokens.
    """
    name = info.get("model")
    theirs = info.get("vocabSize")
    if theirs != vocabulary_size:
        raise ConfigurationError(
            "reference.model",
            f"{name} has a vocabulary of {theirs}, the policy one of {vocabulary_size}: token ids would not mean the "
            "same. Serve the model that is trained, or one of its family with the same vocabulary",
        )
    if info.get("tokenizerHash") not in (None, tokenizer_hash):
        raise ConfigurationError(
            "reference.model",
            f"{name} has another tokenizer than the policy: the same ids mean other tokens. Serve the model that is "
            "trained, or one with the same tokenizer",
        )
    if info.get("dtype") != dtype:
        logger.warning(
            "the reference computes in %s, the policy in %s: KL does not begin at 0", info.get("dtype"), dtype
        )


def is_same_model(info: Mapping[str, Any], spec: Spec) -> bool:
    """Whether, by name and revision, the reference is the model that training begins with."""
    return info.get("model") == spec.model.name and info.get("revision") in (None, spec.model.revision)


def check_agreement(policy: Tensor, reference: Tensor, mask: Tensor, *, half: bool) -> None:
    """Compare log-probabilities (B, C) of policy and reference before the first step, where they are the same model.

    Raises:
        ConfigurationError: they cannot be the same model.
    """
    if not bool(mask.any()):
        return
    difference = float(((policy - reference).abs() * mask).sum() / mask.sum())
    if not difference <= ANOTHER_MODEL:  # NaN included
        raise ConfigurationError(
            "reference.model",
            "before the first step policy and reference are the same model by name, but their log-probabilities "
            f"differ by {difference:.3g} nats per token on average. {_CAUSES}",
        )
    if difference > (HALF_ROUNDING if half else ROUNDING):
        logger.warning(
            "before the first step log-probabilities of policy and reference differ by %.3g nats per token on average, "
            "more than rounding explains. %s",
            difference, _CAUSES,
        )  # fmt: skip
    else:
        logger.info("policy and reference agree: %.2g nats per token on average before the first step", difference)


def is_half(*dtypes: torch.dtype | str | None) -> bool:
    """Whether one of the dtypes has less precision than fp32."""
    return any(str(dtype).removeprefix("torch.") not in ("float32", "float64") for dtype in dtypes)
