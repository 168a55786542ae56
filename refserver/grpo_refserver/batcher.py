"""Which groups of the waiting requests are scored next: pure bookkeeping, no thread, no model.

First come, first served, so that no rank starves: a batch starts with the oldest request's groups and is filled
up from the next ones, under a budget of tokens. Requests merge only if they want the same version and temperature.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_scoring.groups import Group


class Task:
    """One accepted request.

    Args:
        groups: what is to be scored.
        temperature: of the whole request.
        version: the version that must score it.
    """

    def __init__(self, groups: Sequence[Group], temperature: float, version: str) -> None:
        self.groups = groups
        self.temperature = temperature
        self.version = version
        self.waiting_tokens = sum(group.tokens for group in groups)
        """Ids that no batch has taken yet, prompts counted once."""
        longest_first = sorted(range(len(groups)), key=lambda index: groups[index].max_length, reverse=True)
        self.pending = deque(longest_first)
        """Indices of the groups that no batch has taken yet; groups of like length pad less."""

    def take(self) -> int:
        """Takes the next group out; returns its index."""
        index = self.pending.popleft()
        self.waiting_tokens -= self.groups[index].tokens
        return index


@dataclass(frozen=True)
class Batch:
    """Groups to be scored together, each with the task and the index it has there."""

    version: str
    temperature: float
    parts: list[tuple[Task, int]]

    @property
    def groups(self) -> list[Group]:
        """The groups, in the order of ``parts``."""
        return [task.groups[index] for task, index in self.parts]

    @property
    def tasks(self) -> list[Task]:
        """The tasks that have a part in it, each once, oldest first."""
        return list(dict.fromkeys(task for task, _ in self.parts))


class Batcher:
    """The queue.

    Args:
        max_batch_tokens: most tokens of one forward, padding counted. A group that is larger goes alone, and is
            cut into several forwards by the scoring itself.
        deterministic: each group is a batch of its own, so its result is bit-identical whatever else waits.
    """

    def __init__(self, max_batch_tokens: int, *, deterministic: bool = False) -> None:
        self._max_batch_tokens = max_batch_tokens
        self._deterministic = deterministic
        self._tasks: list[Task] = []

    def __len__(self) -> int:
        """Tasks of which something still waits."""
        return len(self._tasks)

    @property
    def waiting_tokens(self) -> int:
        """Tokens that wait."""
        return sum(task.waiting_tokens for task in self._tasks)

    def add(self, task: Task) -> None:
        """Puts a task at the end."""
        self._tasks.append(task)

    def discard(self, task: Task) -> None:
        """Forgets what still waits of a task; does nothing where nothing does."""
        if task in self._tasks:
            self._tasks.remove(task)

    def next(self) -> Batch | None:
        """Takes the next batch out; None where nothing waits."""
        if not self._tasks:
            return None
        head = self._tasks[0]
        parts: list[tuple[Task, int]] = []
        rows = longest = 0
        for task in self._tasks:
            if (task.version, task.temperature) != (head.version, head.temperature):
                break
            while task.pending:
                group = task.groups[task.pending[0]]
                rows += len(group.completions)
                longest = max(longest, group.max_length)
                if parts and (self._deterministic or rows * longest > self._max_batch_tokens):
                    break
                parts.append((task, task.take()))
            if task.pending:
                break
        self._tasks = [task for task in self._tasks if task.pending]
        return Batch(head.version, head.temperature, parts)
