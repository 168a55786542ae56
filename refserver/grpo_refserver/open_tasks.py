"""The tasks that are not answered yet, each with the part of its result that is there."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from grpo_scoring.groups import completion_offsets
from grpo_scoring.logprobs import CompletionLogprobs

from grpo_refserver.batcher import Batch, Task


@dataclass(eq=False)
class OpenTask:
    """``left`` groups of the result are missing; group n goes to ``starts[n]``."""

    result: CompletionLogprobs
    starts: list[int]
    left: int
    arrived: float = field(default_factory=time.monotonic)
    future: Future[CompletionLogprobs] = field(default_factory=Future)

    @classmethod
    def of(cls, task: Task) -> OpenTask:
        """A task of which nothing is scored."""
        bounds = completion_offsets(task.groups)
        values = np.full(int(bounds[-1]), np.nan, dtype=np.float32)
        starts = [0, *itertools.accumulate(group.completion_tokens for group in task.groups)]
        return cls(CompletionLogprobs(values, bounds), starts, len(task.groups))

    def answer(self) -> None:
        """Tells whoever waits, if somebody does."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(self.result)

    def fail(self, error: Exception) -> None:
        """Tells whoever waits, if somebody does."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class OpenTasks:
    """All of them. Not safe for threads by itself."""

    def __init__(self) -> None:
        self._tasks: dict[Task, OpenTask] = {}

    def __iter__(self) -> itertools.chain[Task]:
        return itertools.chain(self._tasks)

    def add(self, task: Task) -> OpenTask:
        """Opens a task."""
        self._tasks[task] = opened = OpenTask.of(task)
        return opened

    def pop(self, task: Task) -> OpenTask | None:
        """Closes a task; None where it is closed already."""
        return self._tasks.pop(task, None)

    def age(self, task: Task) -> float:
        """Seconds since the task was opened; 0 where it is closed already."""
        opened = self._tasks.get(task)
        return time.monotonic() - opened.arrived if opened is not None else 0.0

    def deliver(self, batch: Batch, scored: CompletionLogprobs, begun: float, seconds: float) -> list[OpenTask]:
        """Copies each group's values to its task; returns those that are complete, which are closed.

        Args:
            begun: when the forward began, on ``time.monotonic``'s clock.
            seconds: how long it took.
        """
        for task in batch.tasks:
            if opened := self._tasks.get(task):
                task.forward_seconds += seconds
                if task.wait_seconds is None:
                    task.wait_seconds = max(0.0, begun - opened.arrived)
        ends = [0, *itertools.accumulate(group.completion_tokens for group in batch.groups)]
        complete = []
        for (task, index), (first, last) in zip(batch.parts, itertools.pairwise(ends), strict=True):
            opened = self._tasks.get(task)
            if opened is None:  # cancelled meanwhile
                continue
            start = opened.starts[index]
            opened.result.values[start : start + last - first] = scored.values[first:last]
            opened.left -= 1
            if not opened.left:
                complete.append(self._tasks.pop(task))
        return complete
