"""Log-probabilities of a packed row: one forward of the backbone, one call of the head."""

from __future__ import annotations

from typing import Any

from grpo_scoring.backbone import backbone
from grpo_scoring.head import DEFAULT_CHUNK_SIZE, HeadOutput, head_logprobs
from grpo_scoring.layout import Layout
from grpo_scoring.prefix_attention import LAYOUT, no_mask


def packed_logprobs(
    model: Any,
    layout: Layout,
    *,
    temperature: float = 1.0,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    recompute: bool = True,
    entropy: bool = False,
) -> HeadOutput:
    """Log-probability of every target of the layout, (N,) fp32, with gradient where enabled.

    Args:
        model: a transformers causal LM whose attention knows layouts (`prefix_attention.install`).
        layout: on the model's device.
        temperature: > 0; logits are divided by it.
        chunk_size: positions projected at a time.
        recompute: under grad, project again in backward rather than keep logits.
        entropy: also give each position's entropy.
    """
    hidden = backbone(model)(
        input_ids=layout.ids,
        position_ids=layout.positions,
        attention_mask=no_mask(layout.ids.device),
        use_cache=False,
        **{LAYOUT: layout},
    ).last_hidden_state
    return head_logprobs(
        model,
        hidden[0, layout.predicting],
        layout.targets,
        temperature=temperature,
        chunk_size=chunk_size,
        recompute=recompute,
        entropy=entropy,
    )
