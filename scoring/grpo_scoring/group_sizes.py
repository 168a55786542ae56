"""What the cost of a group depends on: four numbers, however many completions there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from grpo_scoring.groups import Group


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """A prompt and its completions, in tokens. Completions without a token need no forward, and do not count.

    Attributes:
        prompt: P.
        count: how many completions.
        total: ΣC.
        longest: max C; 0 where there are none.
    """

    prompt: int
    count: int
    total: int
    longest: int

    @classmethod
    def of(cls, prompt: int, completions: Iterable[int]) -> GroupSizes:
        """From the sizes of the prompt and of each completion."""
        sizes = [size for size in completions if size]
        return cls(prompt, len(sizes), sum(sizes), max(sizes, default=0))

    @classmethod
    def of_group(cls, group: Group) -> GroupSizes:
        """Of a group."""
        return cls.of(group.prompt.size, (completion.size for completion in group.completions))

    def with_completions_of(self, other: GroupSizes) -> GroupSizes:
        """Both groups as one; they have the same prompt."""
        return GroupSizes(
            self.prompt, self.count + other.count, self.total + other.total, max(self.longest, other.longest)
        )
