"""Whole sequences as groups: what sequences of one request have in common at their start is computed once.

A group gives the log-probabilities of its completions alone, and here those of the prefix are wanted too. So a run
of G sequences with a common prefix of P tokens becomes two groups, the prefix itself and what follows it: 2 P + ΣC
tokens where rows need G P + ΣC. That saves from three sequences on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from grpo_scoring.groups import Group, Ids, completion_offsets
from numpy.typing import NDArray

_LONGEST_RUN = 256
"""Sequences of a run; bounds the work of `_runs` to this times the number of sequences."""


@dataclass(frozen=True, eq=False)
class SharedPrefixes:
    """Sequences, laid out as groups.

    Attributes:
        groups: what is to be scored.
        places: for each sequence of n tokens the (n - 1,) places of its tokens but the first in the flat
            log-probabilities of the groups.
    """

    groups: list[Group]
    places: list[NDArray[np.int64]]

    @classmethod
    def of(cls, sequences: Sequence[Ids], *, share: bool = True) -> SharedPrefixes:
        """Lays out sequences of at least one token; without ``share`` each is a group of its own."""
        order = sorted(range(len(sequences)), key=lambda index: sequences[index].tolist())
        ordered = [sequences[index] for index in order]
        common = [_common(first, second) for first, second in itertools.pairwise(ordered)]
        groups: list[Group] = []
        # For each sequence: (completion's index, tokens to take of it), one after the other.
        parts: list[list[tuple[int, int]]] = [[] for _ in sequences]
        count = 0
        for first, last in _runs(common) if share else [(index, index + 1) for index in range(len(ordered))]:
            members = ordered[first:last]
            prefix = min(common[first : last - 1], default=0)
            if _saved(len(members), prefix):
                groups.append(Group(members[0][:1], (members[0][1:prefix],)))
                groups.append(Group(members[0][:prefix], tuple(ids[prefix:] for ids in members)))
                for index, member in enumerate(members):
                    parts[order[first + index]] = [(count, prefix - 1), (count + 1 + index, member.size - prefix)]
                count += 1 + len(members)
            else:
                for index, member in enumerate(members):
                    groups.append(Group(member[:1], (member[1:],)))
                    parts[order[first + index]] = [(count, member.size - 1)]
                    count += 1
        starts = completion_offsets(groups).astype(np.int64)
        return cls(groups, [_places(starts, own) for own in parts])


def _places(starts: NDArray[np.int64], parts: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.concatenate([np.arange(starts[index], starts[index] + size) for index, size in parts])


def _common(first: Ids, second: Ids) -> int:
    """Length of the common prefix."""
    size = min(first.size, second.size)
    differ = np.flatnonzero(first[:size] != second[:size])
    return int(differ[0]) if differ.size else size


def _saved(members: int, prefix: int) -> int:
    """Tokens that a run saves against rows."""
    return max(0, members - 2) * prefix


def _runs(common: Sequence[int]) -> list[tuple[int, int]]:
    """Cuts sorted sequences into the runs [first, last) that save most.

    Args:
        common: common prefix of each neighbouring pair, one fewer than there are sequences.
    """
    count = len(common) + 1
    best, cut = [0] * (count + 1), [0] * (count + 1)
    for last in range(1, count + 1):
        best[last], cut[last] = best[last - 1], last - 1
        prefix = 2**31
        for first in range(last - 2, max(-1, last - 1 - _LONGEST_RUN), -1):
            prefix = min(prefix, common[first])
            if prefix == 0:
                break
            saved = best[first] + _saved(last - first, prefix)
            if saved > best[last]:
                best[last], cut[last] = saved, first
    runs, last = [], count
    while last:
        runs.append((cut[last], last))
        last = cut[last]
    return runs[::-1]
