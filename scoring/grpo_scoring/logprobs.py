"""Log-probabilities of completion tokens under a causal language model: for groups, and for a padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grpo_scoring.backbone import backbone
from grpo_scoring.groups import Group, Ids, completion_offsets, offsets, split
from grpo_scoring.head import DEFAULT_CHUNK_SIZE, head_logprobs, patch_head
from grpo_scoring.module_forward import as_method, plain_forward, replace_forward
from grpo_scoring.rows import Row, batches, pad, rows_of


class RowLogprobs(NamedTuple):
    """fp32, (B, C); 0 where the attention mask is 0. ``entropy`` (nats, no gradient) is None unless asked for."""

    logprobs: Tensor
    entropy: Tensor | None


@dataclass(frozen=True, eq=False)
class CompletionLogprobs:
    """Log-probabilities of every completion token, end to end in the order of the groups.

    Attributes:
        values: float32, (ΣC,).
        offsets: int32, (M + 1,): completion m is ``values[offsets[m]:offsets[m + 1]]``.
    """

    values: NDArray[np.float32]
    offsets: Ids

    def completions(self) -> list[NDArray[np.float32]]:
        """One array per completion, in order, as views."""
        return split(self.values, self.offsets)


def row_logprobs(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    completion_length: int,
    *,
    temperature: float = 1.0,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    recompute: bool = True,
    entropy: bool = False,
) -> RowLogprobs:
    """Log-probabilities of the last ``completion_length`` columns of a padded batch, with gradient where enabled.

    The batch is TRL's: left-padded prompts next to right-padded completions. Only real completion tokens are
    projected. A row may be all padding; a batch without any completion token still runs the head once, so that
    under ZeRO-3 every rank takes part in the same collectives.

    Args:
        model: a transformers causal LM (for a DeepSpeed engine see ``enable_scoring``).
        input_ids: (B, P + C) int64.
        attention_mask: (B, P + C), 1 for real tokens.
        completion_length: C, TRL's ``logits_to_keep``; 1 <= C < P + C.
        temperature: > 0, the sampling temperature: logits are divided by it.
        chunk_size: positions projected at a time.
        recompute: under grad, project again in backward rather than keep logits.
        entropy: also give each token's entropy.
    """
    if not 0 < completion_length < input_ids.shape[1]:
        raise ValueError(
            f"completion_length must be from 1 to {input_ids.shape[1] - 1} (a prompt token must come before), "
            f"got {completion_length}"
        )
    hidden = backbone(model)(
        input_ids=input_ids,
        attention_mask=attention_mask,
        position_ids=(attention_mask.long().cumsum(-1) - 1).clamp(min=0),
        use_cache=False,
    ).last_hidden_state
    real = attention_mask[:, -completion_length:].bool()
    # Rows and columns of the completion tokens; one stand-in where this rank has none.
    row, column = real.nonzero(as_tuple=True) if bool(real.any()) else real.new_zeros(2, 1).long().unbind()
    first = input_ids.shape[1] - completion_length
    output = head_logprobs(
        model,
        hidden[row, first + column - 1],
        input_ids[row, first + column],
        temperature=temperature,
        chunk_size=chunk_size,
        recompute=recompute,
        entropy=entropy,
    )

    def scatter(values: Tensor) -> Tensor:
        # Not boolean indexing: a stand-in is dropped by the mask and yet keeps its place in the graph.
        placed = values.new_zeros(real.shape).index_put((row, column), values)
        return placed * real

    return RowLogprobs(scatter(output.logprobs), scatter(output.entropy) if output.entropy is not None else None)


def enable_scoring(model: Any) -> None:
    """Lets the model's own forward score: ``model(input_ids=..., attention_mask=..., completion_length=C, ...)``.

    With ``completion_length`` the call is ``row_logprobs`` and returns RowLogprobs; without, nothing changes. A
    DeepSpeed engine must be entered by its forward (its hooks start there), and generation must find the plain
    model inside; both work when this is called before ``deepspeed.initialize``. Idempotent.
    """
    patch_head(model)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("completion_length") is None:
            return plain_forward(self)(*args, **kwargs)
        return row_logprobs(self, *args, **kwargs)

    forward.__signature__ = as_method(model.forward)  # type: ignore[attr-defined]  # generate() reads it
    replace_forward(model, forward)


@torch.no_grad()
def completion_logprobs(
    model: Any,
    groups: Sequence[Group],
    *,
    temperature: float = 1.0,
    max_batch_tokens: int = 16384,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
) -> CompletionLogprobs:
    """Log-probabilities of every completion token of the groups, without gradient.

    One row per completion, sorted by length and cut into forwards of at most ``max_batch_tokens`` tokens, padding
    counted (a longer row runs alone). How rows are put together changes a result only by rounding.

    Args:
        model: a transformers causal LM in eval mode, on any device.
        groups: prompts with their completions; ids must be below the vocabulary size.
        temperature: > 0; logits are divided by it.
        max_batch_tokens: bound on rows x longest row of a forward.
        chunk_size: positions projected at a time.
    """
    bounds = completion_offsets(groups)
    values = np.empty(int(bounds[-1]), dtype=np.float32)
    for batch in batches(rows_of(groups), max_batch_tokens):
        scored = _score(model, batch, temperature, chunk_size)
        sizes = [row.completion.size for row in batch]
        for row, part in zip(batch, split(scored, offsets(sizes)), strict=True):
            values[row.start : row.start + part.size] = part
    return CompletionLogprobs(values, bounds)


def _score(model: Any, rows: Sequence[Row], temperature: float, chunk_size: int) -> NDArray[np.float32]:
    """One forward: log-probabilities of the rows' completion tokens, end to end."""
    device = next(model.parameters()).device
    # No mask and no positions: pads are at the end, so the causal default is right for every real token, and the
    # attention kernel needs no (rows, length, length) mask.
    hidden = backbone(model)(input_ids=torch.from_numpy(pad(rows)).to(device), use_cache=False).last_hidden_state
    line = np.repeat(np.arange(len(rows)), [row.completion.size for row in rows])
    position = np.concatenate([row.positions for row in rows])
    targets = np.concatenate([row.completion for row in rows]).astype(np.int64)
    output = head_logprobs(
        model,
        hidden[torch.from_numpy(line).to(device), torch.from_numpy(position).to(device)],
        torch.from_numpy(targets).to(device),
        temperature=temperature,
        chunk_size=chunk_size,
    )
    scored: NDArray[np.float32] = output.logprobs.cpu().numpy()
    return scored
