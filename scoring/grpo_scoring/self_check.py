"""A check, before anything is trained or served, that the scoring here agrees with the model's own forward."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from grpo_scoring.groups import Group
from grpo_scoring.logprobs import completion_logprobs

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_HALF_TOLERANCE = 0.25  # a model's own logits are rounded to its dtype: of size 30, bfloat16 rounds by 0.06
_HALF_SHARE = 0.05
"""SmolLM2-135M in bfloat16: 0.007. A window, a soft-cap or positions left out: 0.1 and more."""


def tolerance(model: Any) -> float:
    """Largest difference of log-probabilities that rounding in the model's dtype explains."""
    return _TOLERANCE.get(next(model.parameters()).dtype, _HALF_TOLERANCE)


def disagreement(model: Any, scored: NDArray[np.float32], expected: NDArray[np.float32]) -> str | None:
    """How two ways to compute the same log-probabilities differ; None where rounding in the model's dtype explains it.

    In fp32 the largest difference counts. In half precision one unlikely token may be off by half a nat in a right
    model (SmolLM2-135M in bfloat16: 0.55 between plain and packed rows, and 0.44 between either and fp32), so there
    the root mean square counts, relative to that of the values.
    """
    apart = scored - expected
    bound = _TOLERANCE.get(next(model.parameters()).dtype)
    if bound is not None:
        largest = float(np.abs(apart).max())
        return None if largest <= bound else f"differ by {largest:.3g}"  # NaN is above the bound
    share = float(np.sqrt(np.mean(apart**2)) / max(1.0, np.sqrt(np.mean(expected**2))))
    return None if share <= _HALF_SHARE else f"differ by {share:.1%} in the root mean square"


@torch.no_grad()
def check_scoring(model: Any) -> float:
    """Scores a few tokens here and by the model's full logits; returns the largest difference.

    Hidden states and head are called apart here, so whatever a family does to its logits in between
    (``LogitTransform``) must be known. Call it on whole weights, before they are sharded.

    Raises:
        ValueError: the two disagree, so every log-probability and KL of this model would be wrong.
    """
    ids = torch.arange(24) * 7919 % model.get_input_embeddings().num_embeddings
    device = next(model.parameters()).device
    row = ids.to(device)[None]
    logits = model(input_ids=row, use_cache=False).logits[0].float()
    expected = logits.log_softmax(-1)[7:-1].gather(1, row[0, 8:, None])[:, 0].cpu()
    scored = torch.from_numpy(completion_logprobs(model, [Group.of(ids[:8].numpy(), [ids[8:].numpy()])]).values)
    difference = float((scored - expected).abs().max())
    bound = tolerance(model)
    if not difference <= bound:  # NaN included
        raise ValueError(
            f"{type(model).__name__}: log-probabilities differ by {difference:.3g} from those of the model's own "
            f"forward (at most {bound:g} is rounding). Its logits are changed after the head in a way that "
            "grpo_scoring.head.LogitTransform does not know, or its weights are not finite: this model cannot be scored"
        )
    return difference
