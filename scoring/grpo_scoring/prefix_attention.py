"""Attention of packed rows, in transformers' own place for attention: no model code is touched.

`install` registers one function per underlying implementation (sdpa, eager, flash_attention_2 …) with
``AttentionInterface`` and gives it to a model. A call that carries a layout (`LAYOUT`, a keyword of the model's
forward, which every family hands down to its attention) is attention of a packed row; any other call goes to the
underlying implementation unchanged, so generation and plain forwards stay as they were.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch import Tensor, nn

from grpo_scoring.attention_kernels import masked, merged
from grpo_scoring.layout import Layout

LAYOUT = "scoring_layout"
"""Keyword of the model's forward that carries the layout."""

_PREFIX = "grpo_prefix_"
_HARMLESS = frozenset(
    ("position_ids", "position_embeddings", "cache", "past_key_values", "use_cache", "cache_position", "layer_idx")
)
"""Keywords that families hand down to attention and that change nothing of it here (there is no cache)."""


class UnsupportedAttentionError(Exception):
    """A model's attention does what packed rows do not know; the message says what."""


def no_mask(device: torch.device) -> Tensor:
    """An attention mask of four dimensions: transformers hands such a one down as it is, and makes none of its own."""
    return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)


def install(model: Any) -> str:
    """Gives a model attention that knows layouts; returns the implementation it had.

    Raises:
        UnsupportedAttentionError: its attention cannot be exchanged.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    base = model.config._attn_implementation
    if base.startswith(_PREFIX):
        return str(base.removeprefix(_PREFIX))
    name = _PREFIX + base
    AttentionInterface.register(name, functools.partial(_attention, base))
    if base in ALL_MASK_ATTENTION_FUNCTIONS:
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[base])
    set_implementation(model, name)
    if model.config._attn_implementation != name:
        raise UnsupportedAttentionError("its code does not use transformers' attention interface")
    return str(base)


def set_implementation(model: Any, name: str) -> None:
    """Sets a model's attention implementation. Raises UnsupportedAttentionError where its code cannot."""
    try:
        model.set_attn_implementation(name)
    except Exception as error:
        raise UnsupportedAttentionError(f"its attention cannot be exchanged: {error}") from error


def _attention(
    base: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as transformers calls it: queries (B, H, T, D) to (B, T, H, D)."""
    layout: Layout | None = kwargs.pop(LAYOUT, None)
    if layout is None:
        result: tuple[Tensor, Tensor | None] = _underlying(base, module)(
            module, query, key, value, attention_mask, **kwargs
        )
        return result
    return packed_attention(module, query, key, value, layout, **kwargs), None


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: Layout,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **other: Any,
) -> Tensor:
    """Attention of a packed row: queries (1, H, T, D), keys and values (1, H_kv, T, D) to (1, T, H, D).

    Raises:
        UnsupportedAttentionError: it is not causal, or comes with an argument not known here (gpt-oss' sinks
            ``s_aux``, a position bias): ignoring it would give other values than the model's own.
    """
    unknown = sorted(name for name, given in other.items() if name not in _HARMLESS and _says_something(given))
    if unknown:
        raise UnsupportedAttentionError(f"its attention takes {', '.join(unknown)}")
    if is_causal is False or not getattr(module, "is_causal", True):
        raise UnsupportedAttentionError("its attention is not causal")
    if sliding_window is None and _is_sliding(module):
        raise UnsupportedAttentionError("its sliding layers do not hand down their window")
    layout.layers.add(id(module))
    parts: list[Tensor] = []
    alone = layout.merged and softcap is None and not dropout and not torch.is_grad_enabled()
    for span in layout.spans:
        if alone and not span.is_windowed(sliding_window):
            parts += merged(query, key, value, span, scaling=scaling)
        else:
            parts += masked(
                query, key, value, span, scaling=scaling, window=sliding_window, softcap=softcap, dropout=dropout
            )
    return torch.cat(parts, 1)


def _underlying(base: str, module: nn.Module) -> Any:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if base == "eager":  # every family has its own, beside its attention class
        return sys.modules[type(module).__module__].eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[base]


def _is_sliding(module: nn.Module) -> bool:
    layer_types: Any = getattr(getattr(module, "config", None), "layer_types", None)
    index = getattr(module, "layer_idx", None)
    return bool(layer_types and index is not None and layer_types[index] == "sliding_attention")


def _says_something(value: Any) -> bool:
    return value is not None and value is not False
