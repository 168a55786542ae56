"""Which groups of the waiting requests are scored next: pure bookkeeping, no thread, no model.

First come, first served, so that no rank starves: every batch begins with the oldest request that the loaded version
can score, and is filled up from it and the next ones under a budget of tokens. A group brings those of the same
prompt along from other requests: they cost no more than their completions.

Requests for another version wait until it is staged, and then for the requests that came before them; see ``next``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.groups import Group

Cost = Callable[[GroupSizes], int]
"""What a group takes of the budget (``Engine.batch_tokens``)."""


class Task:
    """One accepted request.

    Args:
        groups: what is to be scored; none where a version is only to be loaded.
        temperature: of the whole request.
        version: the version that must score it; None takes the one that is loaded when its turn comes.
        path: the folder of ``version``; None where the request names none.
        deadline: on ``time.monotonic``'s clock: later, nobody waits for it.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        temperature: float,
        version: str | None,
        *,
        path: Path | None = None,
        deadline: float = float("inf"),
    ) -> None:
        self.groups = groups
        self.temperature = temperature
        self.version = version
        self.path = path
        self.deadline = deadline
        self.begun = False
        """Whether a batch has taken something; from there on ``version`` is set."""
        self.wait_seconds: float | None = None
        """From its acceptance to its first forward; set by the worker, as the next."""
        self.forward_seconds = 0.0
        """Time of the forwards that had a part of it."""
        self.waiting_tokens = sum(group.tokens for group in groups)
        """Ids that no batch has taken yet, prompts counted once."""
        longest_first = sorted(range(len(groups)), key=lambda index: groups[index].max_length, reverse=True)
        self.pending = dict.fromkeys(longest_first)
        """Indices of the groups that no batch has taken yet, longest first: groups of like length pad less."""
        self.prompts = [group.prompt.tobytes() for group in groups]
        self.sizes = [GroupSizes.of_group(group) for group in groups]
        self._of_prompt: defaultdict[bytes, list[int]] = defaultdict(list)
        for index in longest_first:
            self._of_prompt[self.prompts[index]].append(index)

    def pending_of(self, prompt: bytes) -> list[int]:
        """Indices of the pending groups with this prompt."""
        return [index for index in self._of_prompt.get(prompt, ()) if index in self.pending]

    def take(self, index: int, version: str) -> None:
        """Takes a group out, to be scored by ``version``."""
        del self.pending[index]
        self.waiting_tokens -= self.groups[index].tokens
        self.begun, self.version = True, version


@dataclass(frozen=True)
class Batch:
    """Groups to be scored together by one version, each with the task and the index it has there.

    Attributes:
        cost: tokens of the budget that they take.
    """

    version: str
    temperature: float
    parts: list[tuple[Task, int]]
    cost: int

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
        max_batch_tokens: most tokens of one batch. A group that is larger goes alone, and is cut into several
            forwards by the scoring itself.
        deterministic: each group is a batch of its own, so its result is bit-identical whatever else waits.
    """

    def __init__(self, max_batch_tokens: int, *, deterministic: bool = False) -> None:
        self.max_batch_tokens = max_batch_tokens
        self._deterministic = deterministic
        self._tasks: dict[Task, None] = {}
        self._waiting_tokens = 0

    def __len__(self) -> int:
        """Tasks of which something still waits."""
        return len(self._tasks)

    @property
    def waiting_tokens(self) -> int:
        """Tokens that wait."""
        return self._waiting_tokens

    @property
    def oldest(self) -> Task | None:
        """The oldest task of which something waits."""
        return next(iter(self._tasks), None)

    def add(self, task: Task) -> None:
        """Puts a task at the end."""
        self._tasks[task] = None
        self._waiting_tokens += task.waiting_tokens

    def discard(self, task: Task) -> None:
        """Forgets what still waits of a task; does nothing where nothing does."""
        if task in self._tasks:
            del self._tasks[task]
            self._waiting_tokens -= task.waiting_tokens

    def expired(self, now: float) -> list[Task]:
        """The tasks whose deadline has passed."""
        return [task for task in self._tasks if task.deadline <= now]

    def wanting(self, version: str) -> list[Task]:
        """The tasks that wait for this version by name, oldest first."""
        return [task for task in self._tasks if task.version == version]

    def next_version(self, loaded: str) -> tuple[str, Path | None] | None:
        """The version and its folder that the oldest task wants which wants another than the loaded one."""
        for task in self._tasks:
            if task.version is not None and task.version != loaded:
                return task.version, task.path
        return None

    def next(self, loaded: str, cost: Cost, staged: str | None = None) -> Batch | None:
        """Takes the next batch for the loaded version out; None where there is nothing for it.

        While the version that is wanted next is being staged, the loaded one goes on with whatever there is for it.
        Once that version is staged, only what came before the oldest request for it is still scored, and what has
        been begun: then None says that it is time to swap. So a swap waits for a bounded amount of work, each swap
        serves the oldest request, and no request is scored by two versions.
        """
        eligible = self._eligible(loaded, staged)
        if not eligible:
            return None
        batch = _Filling(self.max_batch_tokens, cost)
        head = eligible[0]
        alike = [task for task in eligible if task.temperature == head.temperature]
        if self._deterministic:
            batch.add(head, next(iter(head.pending)))
        else:
            batch.fill(alike)
        for task, index in batch.parts:
            self._waiting_tokens -= task.groups[index].tokens
            task.take(index, loaded)
            if not task.pending:
                del self._tasks[task]
        return Batch(loaded, head.temperature, batch.parts, batch.cost)

    def _eligible(self, loaded: str, staged: str | None) -> list[Task]:
        """Tasks that the loaded version may score now, oldest first."""
        result: list[Task] = []
        wanted: str | None = None  # by the oldest task for another version
        for task in self._tasks:
            if task.version is not None and task.version != loaded:
                wanted = wanted or task.version
            elif task.pending and (task.begun or wanted is None or wanted != staged):
                result.append(task)
        return result


class _Filling:
    """A batch in the making."""

    def __init__(self, budget: int, cost: Cost) -> None:
        self._budget = budget
        self._cost = cost
        self._of_prompt: dict[bytes, tuple[GroupSizes, int]] = {}
        self._taken: set[tuple[Task, int]] = set()
        self.parts: list[tuple[Task, int]] = []
        self.cost = 0

    def fill(self, tasks: Sequence[Task]) -> None:
        """Takes from the oldest task on, up to the first group that does not fit."""
        for task in tasks:
            for index in task.pending:
                if (task, index) in self._taken:
                    continue
                is_new = task.prompts[index] not in self._of_prompt
                if not self.add(task, index):
                    return
                for other in tasks if is_new else ():
                    for same in other.pending_of(task.prompts[index]):
                        if (other, same) not in self._taken:
                            self.add(other, same)

    def add(self, task: Task, index: int) -> bool:
        """Adds a group if it fits, or is the first; returns whether it did."""
        sizes, prompt = task.sizes[index], task.prompts[index]
        before, spent = self._of_prompt.get(prompt, (None, 0))
        if before is not None:
            sizes = before.with_completions_of(sizes)
        whole = self._cost(sizes)
        if self.parts and self.cost + whole - spent > self._budget:
            return False
        self._of_prompt[prompt] = (sizes, whole)
        self.cost += whole - spent
        self._taken.add((task, index))
        self.parts.append((task, index))
        return True
