"""Scores groups with one model, each prompt computed once for all its completions where the model can."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.modules.conv import _ConvNd

from grpo_scoring.backbone import backbone
from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.groups import Group, completion_offsets
from grpo_scoring.layout import Layout
from grpo_scoring.logprobs import CompletionLogprobs, completion_logprobs
from grpo_scoring.packed import packed_logprobs
from grpo_scoring.pieces import Piece, forwards
from grpo_scoring.prefix_attention import UnsupportedAttentionError, install, set_implementation
from grpo_scoring.self_check import disagreement
from grpo_scoring.sharing import SharingCost

log = logging.getLogger(__name__)

_HEAD_BYTES = {"cpu": 2**24, "cuda": 2**28}
"""fp32 logits kept at a time: 16 MB hold 85 positions of a vocabulary of 49k, and 27 of 152k. Two such blocks live
at once (logits, and their exponentials): less than the layers below take at their peak, even for a single group."""
_KNOWN_LAYERS = frozenset(("full_attention", "sliding_attention"))


class Scorer:
    """Log-probabilities of completions under one model, without gradient. One thread at a time.

    Attributes:
        shares_prompts: whether prompts are computed once; decided and checked at construction.
        why_not: where they are not, the reason.
    """

    def __init__(
        self, model: Any, *, max_batch_tokens: int = 16384, chunk_size: int | None = None, share_prompts: bool = True
    ) -> None:
        """Gives the model attention that knows packed rows, and compares them with plain ones.

        A model that cannot (attention sinks, state-space layers, code of its own) keeps its attention, and is scored
        in plain rows.

        Args:
            model: a transformers causal LM in eval mode, on its device, with all its weights.
            max_batch_tokens: most tokens of a forward; a single row that is larger goes alone.
            chunk_size: positions projected to the vocabulary at a time; None takes what fits 16 MB of logits on a
                CPU, 256 MB on a GPU.
            share_prompts: False scores plain rows.
        """
        self.model = model
        self.device = next(model.parameters()).device
        self.max_batch_tokens = max_batch_tokens
        self.chunk_size = chunk_size or _chunk_size(model, self.device.type)
        self.why_not: str | None = None
        self._merged = False
        if not share_prompts:
            self.why_not = "plain rows are asked for"
        else:
            try:
                self._merged = _prepare(model, self.chunk_size)
            except UnsupportedAttentionError as error:
                self.why_not = str(error)
        self.shares_prompts = self.why_not is None
        self._cost = SharingCost.of(model, self.device.type, merged=self._merged) if self.shares_prompts else None

    def batch_tokens(self, sizes: GroupSizes) -> int:
        """What a group takes of ``max_batch_tokens``, pads counted."""
        if not sizes.count:
            return 0
        if self._cost is None:
            return sizes.count * (sizes.prompt + sizes.longest - 1)
        copies = 1 if self._cost.shares(sizes) else sizes.count
        return copies * sizes.prompt + sizes.total - sizes.count

    @torch.inference_mode()
    def score(self, groups: Sequence[Group], *, temperature: float = 1.0) -> CompletionLogprobs:
        """Log-probabilities of every completion token of the groups, in their order.

        Groups of the same prompt share it. How groups are put together changes a result only by rounding.

        Args:
            groups: ids must be below the vocabulary size.
            temperature: > 0; logits are divided by it.
        """
        if self._cost is None:
            return completion_logprobs(
                self.model,
                groups,
                temperature=temperature,
                max_batch_tokens=self.max_batch_tokens,
                chunk_size=self.chunk_size,
            )
        bounds = completion_offsets(groups)
        values = np.empty(int(bounds[-1]), dtype=np.float32)
        for pieces in forwards(groups, self.max_batch_tokens, self._cost.shares):
            layout = Layout.of(pieces, device=self.device, merged=self._merged)
            scored = packed_logprobs(self.model, layout, temperature=temperature, chunk_size=self.chunk_size)
            _place(values, pieces, scored.logprobs)
        return CompletionLogprobs(values, bounds)


def _chunk_size(model: Any, device_type: str) -> int:
    vocabulary = model.get_output_embeddings().weight.shape[0]
    return int(max(16, _HEAD_BYTES.get(device_type, _HEAD_BYTES["cuda"]) // (4 * vocabulary)))


def _place(values: NDArray[np.float32], pieces: Sequence[Piece], logprobs: Tensor) -> None:
    """Copies a forward's log-probabilities, in its layout's order, to where each completion's belong."""
    flat, done = logprobs.cpu().numpy(), 0
    for piece in pieces:
        for completion, start in zip(piece.completions, piece.starts, strict=True):
            values[start : start + completion.size] = flat[done : done + completion.size]
            done += completion.size


def _prepare(model: Any, chunk_size: int) -> bool:
    """Gives the model attention that knows layouts; returns whether it may run merged.

    Raises:
        UnsupportedAttentionError: packed rows are not possible; the model is as it was.
    """
    _check_structure(model)
    before = install(model)
    problem = UnsupportedAttentionError("unknown")
    for merged in (True, False):
        try:
            _compare(model, chunk_size, merged=merged)
            return merged
        except UnsupportedAttentionError as error:
            problem = error
        except Exception as error:  # noqa: BLE001  (a model's own code may fail in any way on a row it does not expect)
            problem = UnsupportedAttentionError(f"a packed row fails with {type(error).__name__}: {error}")
    set_implementation(model, before)
    raise problem


def _check_structure(model: Any) -> None:
    """Refuses what a short comparison could miss. Raises UnsupportedAttentionError."""
    config = model.config.get_text_config()
    foreign = sorted(set(getattr(config, "layer_types", None) or ()) - _KNOWN_LAYERS)
    if foreign:
        raise UnsupportedAttentionError(f"it has layers of type {', '.join(foreign)}")
    if getattr(config, "attention_chunk_size", None):
        raise UnsupportedAttentionError("its attention is chunked")
    mixers = [name for name, module in backbone(model).named_modules() if isinstance(module, _ConvNd)]
    if mixers:
        raise UnsupportedAttentionError(f"{mixers[0]} mixes neighbouring tokens outside attention")


@torch.inference_mode()
def _compare(model: Any, chunk_size: int, *, merged: bool) -> None:
    """Scores a few ragged groups packed and in plain rows. Raises UnsupportedAttentionError where they differ."""
    groups = _probe(model.get_input_embeddings().num_embeddings)
    expected = completion_logprobs(model, groups, chunk_size=chunk_size).values
    (pieces,) = forwards(groups, 2**20, lambda sizes: True)
    layout = Layout.of(pieces, device=next(model.parameters()).device, merged=merged)
    scored = np.empty_like(expected)
    _place(scored, pieces, packed_logprobs(model, layout, chunk_size=chunk_size).logprobs)
    layers = model.config.get_text_config().num_hidden_layers
    if len(layout.layers) != layers:
        raise UnsupportedAttentionError(f"{len(layout.layers)} of its {layers} layers hand the layout to attention")
    problem = disagreement(model, scored, expected)
    if problem is not None:
        raise UnsupportedAttentionError(f"packed rows {problem} from plain ones")


def _probe(vocabulary: int) -> list[Group]:
    """Two ragged groups, and one completion alone."""
    ids = (np.arange(1, 200) * 7919 % vocabulary).astype(np.int32)
    cut = np.split(ids, np.cumsum([23, 9, 17, 1, 17, 7, 5, 20, 11, 30, 8]))
    return [Group(cut[0], tuple(cut[1:5])), Group(cut[5], tuple(cut[6:9])), Group(cut[9], (cut[10],))]
