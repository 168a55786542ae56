"""From groups to what goes into the forwards: equal prompts put together, then cut under a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.groups import Group, Ids


@dataclass(frozen=True, eq=False)
class Piece:
    """A prompt and completions of it that go into one forward.

    Attributes:
        prompt: (P,).
        completions: at least one, each of at least one token.
        starts: where each completion's log-probabilities go in the flat answer.
        shared: whether the prompt is computed once, rather than once for every completion.
    """

    prompt: Ids
    completions: tuple[Ids, ...]
    starts: tuple[int, ...]
    shared: bool

    @property
    def tokens(self) -> int:
        """Tokens that the model computes. A completion's last token predicts nothing, and is left out."""
        own = sum(completion.size - 1 for completion in self.completions)
        return own + self.prompt.size * (1 if self.shared else len(self.completions))


Shares = Callable[[GroupSizes], bool]
"""Whether it pays to compute a group's prompt once (`sharing.SharingCost`)."""


def merge(groups: Iterable[Group]) -> list[tuple[Ids, list[tuple[Ids, int]]]]:
    """Puts groups of the same prompt together, in order of first appearance; empty completions need no forward.

    Returns (prompt, [(completion, its start in the flat answer), ...]) with at least one completion each.
    """
    merged: dict[bytes, tuple[Ids, list[tuple[Ids, int]]]] = {}
    start = 0
    for group in groups:
        key = group.prompt.tobytes()
        for completion in group.completions:
            if completion.size:
                merged.setdefault(key, (group.prompt, []))[1].append((completion, start))
            start += completion.size
    return list(merged.values())


def forwards(groups: Iterable[Group], max_batch_tokens: int, shares: Shares) -> Iterator[list[Piece]]:
    """Cuts groups into forwards of at most ``max_batch_tokens`` tokens; a completion that is larger goes alone.

    A group that does not fit one forward is cut between completions; each part computes the prompt again.
    """
    row: list[Piece] = []
    free = max_batch_tokens
    for prompt, members in merge(groups):
        # Longest first: parts of a group that is cut have completions of like length, which fold with few pads.
        members.sort(key=lambda member: -member[0].size)
        share = shares(GroupSizes.of(prompt.size, (completion.size for completion, _ in members)))
        while members:
            count = _fitting(prompt.size, (completion.size for completion, _ in members), free, share)
            if count == 0 and row:
                yield row
                row, free = [], max_batch_tokens
                continue
            part, members = members[: max(1, count)], members[max(1, count) :]
            piece = Piece(prompt, tuple(c for c, _ in part), tuple(s for _, s in part), share)
            row.append(piece)
            free -= piece.tokens
    if row:
        yield row


def _fitting(prompt: int, sizes: Iterable[int], free: int, share: bool) -> int:
    """How many of the completions fit into ``free`` tokens."""
    used = prompt if share else 0
    count = 0
    for size in sizes:
        used += size - 1 if share else prompt + size - 1
        if used > free:
            break
        count += 1
    return count
