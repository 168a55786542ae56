"""A check, before anything is trained or served, that the scoring here agrees with the model's own forward."""

from __future__ import annotations

from typing import Any

import torch

from grpo_scoring.groups import Group
from grpo_scoring.logprobs import completion_logprobs

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_HALF_TOLERANCE = 0.25  # a model's own logits are rounded to its dtype: of size 30, bfloat16 rounds by 0.06


def tolerance(model: Any) -> float:
    """Largest difference of log-probabilities that rounding in the model's dtype explains."""
    return _TOLERANCE.get(next(model.parameters()).dtype, _HALF_TOLERANCE)


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
