"""Attention within one span of a packed row: the prefix to itself, the branches to the prefix and to themselves.

Two ways give the same:

- `masked`: branches attend to ``cat(prefix, own)`` under a mask. Handles everything (gradients, dropout, sliding
  windows, soft-caps), on every device, at the price of a prefix expanded to all branches and of masked-out work.
- `merged`: branches attend to the prefix in one call without a mask, all branches' queries as one sequence, and to
  themselves in another, causal one; the two are merged by their log-sum-exps as flash attention merges its blocks
  (Dao et al. 2022, arXiv:2205.14135). Nothing is expanded and nothing masked out; without gradient, window, soft-cap.

Shapes: queries (1, H, T, D), keys and values (1, H_kv, T, D) of the whole row, H a multiple of H_kv; results are a
list of (1, tokens, H, D) that cover the span in its order.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from grpo_scoring.layout import Span

_MAX_SCORES = 2**26
"""Scores that the soft-capped path keeps at a time: 256 MB in fp32."""


def masked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    span: Span,
    *,
    scaling: float | None,
    window: int | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
) -> list[Tensor]:
    """Attention of a span under explicit masks; differentiable."""
    parts = []
    begin, middle = span.start, span.first_branch
    shared_key, shared_value = key[:, :, begin:middle], value[:, :, begin:middle]

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if softcap is not None:
            return _softcapped(q, k, v, mask, scaling=scaling, softcap=softcap, dropout=dropout)
        return _sdpa(q, k, v, mask, scaling=scaling, dropout=dropout)

    if span.prefix:
        own = attend(query[:, :, begin:middle], shared_key, shared_value, span.prefix_mask(window))
        parts.append(own.transpose(1, 2))
    if span.branches:
        branch_key, branch_value = span.fold(key), span.fold(value)
        if span.prefix:
            count = len(span.branches)
            branch_key = torch.cat([shared_key.expand(count, -1, -1, -1), branch_key], 2)
            branch_value = torch.cat([shared_value.expand(count, -1, -1, -1), branch_value], 2)
        own = attend(span.fold(query), branch_key, branch_value, span.branch_mask(window))
        parts.append(span.unfold(own).transpose(1, 2))
    return parts


def merged(query: Tensor, key: Tensor, value: Tensor, span: Span, *, scaling: float | None) -> list[Tensor]:
    """Attention of a span in parts that are merged by their log-sum-exps; without gradient."""
    parts = []
    begin, middle, end = span.start, span.first_branch, span.end
    shared_key, shared_value = key[:, :, begin:middle], value[:, :, begin:middle]
    if span.prefix:
        own = _sdpa(query[:, :, begin:middle], shared_key, shared_value, None, scaling=scaling)
        parts.append(own.transpose(1, 2))
    if span.branches:
        folded = (span.fold(query), span.fold(key), span.fold(value))
        if not span.prefix:
            parts.append(span.unfold(_sdpa(*folded, None, scaling=scaling)).transpose(1, 2))
            return parts
        own, own_sum = _with_log_sum(*folded, causal=True, scaling=scaling)
        to_prefix, prefix_sum = _with_log_sum(
            query[:, :, middle:end], shared_key, shared_value, causal=False, scaling=scaling
        )
        # exp(a) / (exp(a) + exp(b)), without overflow
        weight = torch.sigmoid(span.unfold(own_sum) - prefix_sum)[..., None]
        parts.append(torch.lerp(to_prefix, span.unfold(own), weight.to(own.dtype)).transpose(1, 2))
    return parts


def _sdpa(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scaling: float | None, dropout: float = 0.0
) -> Tensor:
    """torch's attention; no mask means causal. (B, H, Q, D)."""
    grouped = query.shape[1] != key.shape[1]
    if grouped and mask is not None and query.is_cuda:
        # The kernels that take a mask on CUDA take no grouped heads: torch would fall back to full scores.
        key, value = _repeat(key, query), _repeat(value, query)
        grouped = False
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scaling, dropout_p=dropout, enable_gqa=grouped
    )


def _with_log_sum(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scaling: float | None
) -> tuple[Tensor, Tensor]:
    """Attention (B, H, Q, D) and the log-sum-exp of its scores (B, H, Q), fp32."""
    if query.device.type == "cpu":
        output, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scaling
        )
        return output, log_sum
    if query.dtype in (torch.float16, torch.bfloat16):
        result = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal, scale=scaling)
    else:
        key, value = _repeat(key, query), _repeat(value, query)
        result = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, None, True, 0.0, causal, scale=scaling
        )
    return result[0], result[1][:, :, : query.shape[2]]  # the kernel pads the sums


def _softcapped(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    scaling: float | None,
    softcap: float,
    dropout: float,
) -> Tensor:
    """Attention whose scores are ``c * tanh(s / c)`` before the mask (Gemma 2), a few rows of the batch at a time."""
    key, value = _repeat(key, query), _repeat(value, query)
    if mask is None:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.tanh(q @ k.transpose(2, 3) * scale / softcap) * softcap
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1, dtype=torch.float32).to(q.dtype)
        return F.dropout(weights, dropout) @ v

    size = max(1, _MAX_SCORES // (query.shape[1] * query.shape[2] * key.shape[2]))
    parts = zip(torch.split(query, size), torch.split(key, size), torch.split(value, size), strict=True)
    return torch.cat([attend(*part) for part in parts])


def _repeat(states: Tensor, query: Tensor) -> Tensor:
    """Grouped keys or values, once for every head of the query."""
    return states.repeat_interleave(query.shape[1] // states.shape[1], dim=1)
