"""Rows: one completion behind its prompt, and how rows share a forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_scoring.groups import Group, Ids


@dataclass(frozen=True, eq=False)
class Row:
    """One completion of at least one token behind its prompt.

    Attributes:
        prompt: (P,).
        completion: (C,).
        start: where its log-probabilities go in the flat answer.
    """

    prompt: Ids
    completion: Ids
    start: int

    @property
    def length(self) -> int:
        """Tokens the model must see: the last one predicts nothing that is asked for, so P + C - 1."""
        return self.prompt.size + self.completion.size - 1

    @property
    def positions(self) -> NDArray[np.int64]:
        """(C,) positions of the states that predict the completion's tokens."""
        return np.arange(self.prompt.size - 1, self.length)


def rows_of(groups: Iterable[Group]) -> list[Row]:
    """One row per completion in the groups' order; an empty completion needs none."""
    rows, start = [], 0
    for group in groups:
        for completion in group.completions:
            if completion.size:
                rows.append(Row(group.prompt, completion, start))
            start += completion.size
    return rows


def batches(rows: Iterable[Row], max_batch_tokens: int) -> Iterator[list[Row]]:
    """Cuts rows into forwards of at most ``max_batch_tokens`` tokens, padding counted; a longer row is alone.

    Longest first, so that a batch has rows of like length and the largest forward, which may run out of memory,
    comes first.
    """
    batch: list[Row] = []
    for row in sorted(rows, key=lambda row: row.length, reverse=True):
        if batch and batch[0].length * (len(batch) + 1) > max_batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def pad(rows: Sequence[Row]) -> NDArray[np.int64]:
    """Input ids (rows, longest), padded on the right with 0: under causal attention no real token sees a pad."""
    ids = np.zeros((len(rows), max(row.length for row in rows)), dtype=np.int64)
    for line, row in zip(ids, rows, strict=True):
        line[: row.prompt.size] = row.prompt
        line[row.prompt.size : row.length] = row.completion[:-1]
    return ids
