"""A group: one prompt and the completions sampled from it, as token ids."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ids = NDArray[np.int32]
"""Token ids, shape (length,)."""

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Group:
    """One prompt and its completions.

    Attributes:
        prompt: shape (P,), P >= 1: the first completion token is predicted from the last prompt token.
        completions: at least one; each of shape (C_i,), C_i >= 0, ragged.
    """

    prompt: Ids
    completions: tuple[Ids, ...]

    def __post_init__(self) -> None:
        if self.prompt.ndim != 1 or self.prompt.size == 0:
            raise ValueError("prompt must be a one-dimensional array of at least one token id")
        if not self.completions:
            raise ValueError("completions must hold at least one completion")
        if any(completion.ndim != 1 for completion in self.completions):
            raise ValueError("each completion must be a one-dimensional array of token ids")

    @classmethod
    def of(cls, prompt: ArrayLike, completions: Iterable[ArrayLike]) -> Group:
        """Makes a group from lists (or anything that numpy reads) of token ids."""
        return cls(_ids(prompt), tuple(_ids(completion) for completion in completions))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return (
            np.array_equal(self.prompt, other.prompt)
            and len(self.completions) == len(other.completions)
            and all(
                np.array_equal(mine, theirs) for mine, theirs in zip(self.completions, other.completions, strict=True)
            )
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def completion_tokens(self) -> int:
        """Tokens whose log-probabilities are asked for: ΣC."""
        return sum(completion.size for completion in self.completions)

    @property
    def tokens(self) -> int:
        """Ids on the wire, the prompt counted once: P + ΣC."""
        return self.prompt.size + self.completion_tokens

    @property
    def row_tokens(self) -> int:
        """Tokens of a forward over one row per completion: Σ(P + C), empty completions left out."""
        return sum(self.prompt.size + completion.size for completion in self.completions if completion.size)

    @property
    def max_length(self) -> int:
        """Longest row, P + max C."""
        return self.prompt.size + max(completion.size for completion in self.completions)


@dataclass(frozen=True, eq=False)
class FlatGroups:
    """Groups laid end to end: what the binary wire format carries. All arrays are int32.

    Attributes:
        prompt_ids: (ΣP,) ids of all prompts.
        prompt_offsets: (N + 1,) prompt n is ``prompt_ids[prompt_offsets[n]:prompt_offsets[n + 1]]``.
        completion_ids: (ΣC,) ids of all completions, group after group.
        completion_offsets: (M + 1,) the same for completion m.
        group_offsets: (N + 1,) group n has completions ``group_offsets[n]`` to ``group_offsets[n + 1] - 1``.
    """

    prompt_ids: Ids
    prompt_offsets: Ids
    completion_ids: Ids
    completion_offsets: Ids
    group_offsets: Ids

    @classmethod
    def of(cls, groups: Sequence[Group]) -> FlatGroups:
        """Lays groups end to end, in their order."""
        completions = [completion for group in groups for completion in group.completions]
        return cls(
            prompt_ids=_concatenate([group.prompt for group in groups]),
            prompt_offsets=offsets([group.prompt.size for group in groups]),
            completion_ids=_concatenate(completions),
            completion_offsets=offsets([completion.size for completion in completions]),
            group_offsets=offsets([len(group.completions) for group in groups]),
        )

    def groups(self) -> list[Group]:
        """The groups again, as views. The offsets must be valid (``wire`` checks what came over the network)."""
        prompts = split(self.prompt_ids, self.prompt_offsets)
        completions = split(self.completion_ids, self.completion_offsets)
        bounds = self.group_offsets.tolist()
        return [
            Group(prompt, tuple(completions[first:last]))
            for prompt, first, last in zip(prompts, bounds[:-1], bounds[1:], strict=True)
        ]


def offsets(lengths: Sequence[int]) -> Ids:
    """Lengths to offsets: [3, 0, 2] to [0, 3, 3, 5], int32. Raises ValueError above 2**31 - 1."""
    result = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(np.asarray(lengths, dtype=np.int64), out=result[1:])
    if result[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"{result[-1]} tokens do not fit 32-bit offsets: send fewer at a time")
    return result.astype(np.int32)


def completion_offsets(groups: Sequence[Group]) -> Ids:
    """Offsets (M + 1,) of a flat array with one entry per completion token, in the groups' order."""
    return offsets([completion.size for group in groups for completion in group.completions])


def split(flat: NDArray[Scalar], bounds: Ids) -> list[NDArray[Scalar]]:
    """Cuts a flat array at offsets, into views: the inverse of concatenation."""
    ends = bounds.tolist()
    return [flat[first:last] for first, last in itertools.pairwise(ends)]


def _ids(values: ArrayLike) -> Ids:
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, dtype=np.int32)
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() > np.iinfo(np.int32).max:
        raise ValueError("token ids must be integers from 0 to 2**31 - 1")
    return array.astype(np.int32, copy=False)


def _concatenate(arrays: Sequence[Ids]) -> Ids:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)
