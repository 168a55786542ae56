"""Do trainer and reference server speak of the same model? Looked at before training, and at the first batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from grpo_api.v1alpha1 import Spec
from grpo_scoring.tokenizer_hash import tokenizer_hash
from torch import Tensor

from grpo_trainer.errors import ConfigurationError
from grpo_trainer.reference.info import ReferenceInfo

logger = logging.getLogger(__name__)

ROUNDING, HALF_ROUNDING = 1e-3, 0.1
"""Mean difference of log-probabilities, in nats per token, that rounding explains: in fp32; where one is in half."""
ANOTHER_MODEL = 0.5
"""Mean difference that only other weights, or other tokens, explain."""
TOKENIZER_PROBE = "  3.14 × 10³ = 3140\n\tdef f(x): return x**2  # naïve café, 東京, Привет 🙂 \\frac{1}{2}"
"""Text that tokenizers hardly split alike unless they are the same: digits, spaces, scripts, code."""

_CAUSES = (
    "Usual causes: the weights in the volume were changed after the server had read them; another dtype or "
    "attnImplementation; another temperature; a chat, adapter or quantized checkpoint under the same name"
)


class Server(Protocol):
    """What is asked of a server that does not tell its vocabulary and tokenizer by itself."""

    def has_token(self, token: int) -> bool:
        """Whether the id is in its vocabulary."""
        ...

    def tokenize(self, text: str) -> list[int] | None:
        """Its ids of a text; None where it does not tell."""
        ...


def check_server(
    info: ReferenceInfo, server: Server, *, vocabulary_size: int, tokenizer: Any, dtype: str, longest: int
) -> None:
    """Compare the server with the policy.

    Args:
        info: what the server tells.
        server: whom to ask what it does not tell.
        vocabulary_size: the policy's.
        tokenizer: the policy's.
        dtype: the policy's, such as `bfloat16`.
        longest: most tokens of a prompt and its completion that the job allows.

    Raises:
        ConfigurationError: ids would not mean the same tokens.
    """
    _check_vocabulary(info, server, vocabulary_size)
    if info.tokenizer_hash is not None:
        same = info.tokenizer_hash == tokenizer_hash(tokenizer)
    else:
        theirs = server.tokenize(TOKENIZER_PROBE)
        same = theirs is None or theirs == tokenizer.encode(TOKENIZER_PROBE, add_special_tokens=False)
    if not same:
        raise ConfigurationError(
            "reference.model",
            f"{info.model} has another tokenizer than the policy: the same ids mean other tokens. Serve the model that "
            "is trained, or one with the same tokenizer",
        )
    if info.dtype is not None and info.dtype != dtype:
        logger.warning("the reference computes in %s, the policy in %s: KL does not begin at 0", info.dtype, dtype)
    if info.max_length is not None and longest >= info.max_length:
        logger.warning(
            "the reference server takes rows below %d tokens, and dataset.maxPromptLength with "
            "generation.maxCompletionLength allow %d: a longer one would end the run. Serve it with a longer context, "
            "or lower one of the two",
            info.max_length, longest,
        )  # fmt: skip


def _check_vocabulary(info: ReferenceInfo, server: Server, ours: int) -> None:
    theirs = info.vocabulary_size
    if theirs is None:
        if not server.has_token(ours - 1):
            problem = f"has no token id {ours - 1}, the policy's last"
        elif server.has_token(ours):
            problem = f"has a token id {ours}, beyond the policy's vocabulary of {ours}"
        else:
            return
    elif theirs == ours:
        return
    else:
        problem = f"has a vocabulary of {theirs}, the policy one of {ours}"
    raise ConfigurationError(
        "reference.model",
        f"{info.model} {problem}: token ids would not mean the same. Serve the model that is trained, or one of its "
        "family with the same vocabulary",
    )


def check_replicas(infos: Sequence[ReferenceInfo]) -> None:
    """Compare what the ranks were told: behind one address there may be several servers.

    Raises:
        ConfigurationError: they serve different models or versions.
    """
    found = sorted({(info.model, info.version) for info in infos})
    if len(found) > 1:
        raise ConfigurationError(
            "reference",
            "the replicas behind the reference server's address serve different weights: "
            f"{', '.join(f'{model} version {version}' for model, version in found)}. Serve one of them",
        )


def is_same_model(info: ReferenceInfo, spec: Spec) -> bool:
    """Whether, by name and revision, the reference is the model that training begins with."""
    return info.model == spec.model.name and info.revision in (None, spec.model.revision)


def check_agreement(policy: Tensor, reference: Tensor, mask: Tensor, *, half: bool) -> None:
    """Compare log-probabilities (B, C) of policy and reference before the first step, where they are the same model.

    The bound is on the mean absolute difference, which bounds the KL divergence and, unlike its estimate from samples
    (k3, Schulman 2020), is no sum of terms that cancel.

    Raises:
        ConfigurationError: they cannot be the same model.
    """
    if not bool(mask.any()):
        return
    delta = (reference - policy) * mask
    difference = float(delta.abs().sum() / mask.sum())
    kl = float((torch.expm1(delta.double()) - delta.double()).sum() / mask.sum())
    if not difference <= ANOTHER_MODEL:  # NaN included
        raise ConfigurationError(
            "reference.model",
            "before the first step policy and reference are the same model by name, but their log-probabilities "
            f"differ by {difference:.3g} nats per token on average (KL {kl:.3g}). {_CAUSES}",
        )
    if difference > (HALF_ROUNDING if half else ROUNDING):
        logger.warning(
            "before the first step log-probabilities of policy and reference differ by %.3g nats per token on average "
            "(KL %.3g), more than rounding explains. %s",
            difference, kl, _CAUSES,
        )  # fmt: skip
    else:
        logger.info(
            "policy and reference agree: %.2g nats per token on average before the first step (KL %.2g)", difference, kl
        )


def is_half(*dtypes: torch.dtype | str | None) -> bool:
    """Whether one of the dtypes has less precision than fp32, or is not known."""
    return any(str(dtype).removeprefix("torch.") not in ("float32", "float64") for dtype in dtypes)
