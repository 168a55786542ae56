"""The layout of a packed row: several prompts with their completions, end to end, in one forward without padding.

A row is a list of spans. A span is a prefix that is computed once, and branches that continue it: a prompt and its
completions. Positions restart after the prefix for every branch, so each branch sees what it would see in a row of
its own; only attention has to know (`prefix_attention`). Every other layer works token by token and computes
P + ΣC tokens where one row per completion takes Σ(P + C).

The layout is an argument of the model's forward, never a global: gradient checkpointing runs a layer again later,
when a global would hold the next row's layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grpo_scoring.pieces import Piece

Indices = NDArray[np.int64]


@dataclass(eq=False)
class Span:
    """Tokens ``start`` to ``start + length`` of a row: a prefix, then the branches one after the other.

    Attributes:
        start: first token in the row.
        prefix: tokens of the prefix; 0 where the branches are rows of their own.
        branches: tokens of each branch, each >= 1; none where the prefix is all there is.
    """

    start: int
    prefix: int
    branches: tuple[int, ...]
    device: torch.device | str = "cpu"
    _masks: dict[Any, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.longest = max(self.branches, default=0)
        self.dense = all(size == self.longest for size in self.branches)
        """Whether all branches are of one length, so that a view does where indices would copy."""
        self.first_branch = self.start + self.prefix
        self.end = self.first_branch + sum(self.branches)
        if not self.dense:
            lengths = np.array(self.branches)
            begins = self.first_branch + np.cumsum(lengths) - lengths
            # A pad reads its branch's last token again: finite values, and causal attention never looks ahead to it.
            columns = np.minimum(np.arange(self.longest), lengths[:, None] - 1)
            real = np.arange(self.longest) < lengths[:, None]
            self._folded = torch.from_numpy(begins[:, None] + columns).to(self.device)
            self._unfolded = torch.from_numpy(np.flatnonzero(real.ravel())).to(self.device)

    def fold(self, states: Tensor) -> Tensor:
        """(1, H, T, D) of the whole row to (branches, H, longest, D), padded at the end."""
        if self.dense:
            own = states[0, :, self.first_branch : self.end]
            return own.reshape(own.shape[0], len(self.branches), self.longest, -1).transpose(0, 1)
        return states[0][:, self._folded].transpose(0, 1)

    def unfold(self, states: Tensor) -> Tensor:
        """(branches, H, longest, ...) back to (1, H, tokens of all branches, ...), without the pads."""
        flat = states.transpose(0, 1).flatten(1, 2)[None]
        return flat if self.dense else flat[:, :, self._unfolded]

    def prefix_mask(self, window: int | None) -> Tensor | None:
        """(prefix, prefix), True where a query may look; None where plain causal attention is meant."""
        if window is None or window >= self.prefix:
            return None
        return self._mask(("prefix", window), range(self.prefix), self.prefix, window)

    def branch_mask(self, window: int | None) -> Tensor | None:
        """(longest, prefix + longest), True where a query may look; None where plain causal attention is meant."""
        total = self.prefix + self.longest
        if window is not None and window >= total:
            window = None
        if not self.prefix and window is None:
            return None
        return self._mask(("branch", window), range(self.prefix, total), total, window)

    def is_windowed(self, window: int | None) -> bool:
        """Whether a sliding window of so many tokens leaves out anything here."""
        return window is not None and window < self.prefix + self.longest

    def _mask(self, key: Any, queries: range, keys: int, window: int | None) -> Tensor:
        if key not in self._masks:  # the same in every layer
            query = torch.arange(queries.start, queries.stop, device=self.device)[:, None]
            place = torch.arange(keys, device=self.device)[None]
            mask = place <= query
            if window is not None:
                mask &= place > query - window
            self._masks[key] = mask
        return self._masks[key]


@dataclass(eq=False)
class Layout:
    """One packed row, and which of its states predict what.

    Attributes:
        ids: (1, T) token ids.
        positions: (1, T) position ids.
        predicting: (N,) for each target, the token of the row whose state predicts it.
        targets: (N,) token ids, piece after piece, completion after completion.
        spans: cover the row from its start to its end.
        merged: whether attention may use the kernels without gradient (`attention_kernels`).
        layers: the attention modules that have used this layout so far.
    """

    ids: Tensor
    positions: Tensor
    predicting: Tensor
    targets: Tensor
    spans: list[Span]
    merged: bool = False
    layers: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, pieces: Sequence[Piece], *, device: torch.device | str = "cpu", merged: bool = False) -> Layout:
        """Lays pieces end to end."""
        ids: list[NDArray[np.int32]] = []
        positions: list[Indices] = []
        predicting: list[Indices] = []
        spans: list[Span] = []
        start = 0
        for piece in pieces:
            span = _span(piece, start, device)
            spans.append(span)
            place = start
            if piece.shared:
                ids.append(piece.prompt)
                positions.append(np.arange(piece.prompt.size))
                place += piece.prompt.size
            for completion in piece.completions:
                states = completion[:-1]  # the last token predicts nothing that is asked for
                if piece.shared:
                    row, first = states, piece.prompt.size
                    head = [start + piece.prompt.size - 1]
                else:
                    row, first = np.concatenate([piece.prompt, states]), 0
                    head = [place + piece.prompt.size - 1]
                own = np.arange(place + row.size - states.size, place + row.size)
                predicting.append(np.concatenate([head, own]))
                ids.append(row)
                positions.append(np.arange(first, first + row.size))
                place += row.size
            start = span.end
        targets = [completion for piece in pieces for completion in piece.completions]

        def tensor(parts: Sequence[NDArray[Any]]) -> Tensor:
            return torch.from_numpy(np.concatenate(parts).astype(np.int64)).to(device)

        return cls(tensor(ids)[None], tensor(positions)[None], tensor(predicting), tensor(targets), spans, merged)


def _span(piece: Piece, start: int, device: torch.device | str) -> Span:
    prompt = piece.prompt.size
    if not piece.shared:
        return Span(start, 0, tuple(prompt + completion.size - 1 for completion in piece.completions), device)
    if len(piece.completions) == 1:  # nothing branches: one causal row
        return Span(start, prompt + piece.completions[0].size - 1, (), device)
    return Span(start, prompt, tuple(c.size - 1 for c in piece.completions if c.size > 1), device)
