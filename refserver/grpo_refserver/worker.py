"""The thread that owns the model: loads it, then scores what waits, batch after batch.

The event loop never waits for a forward, so health checks answer while one runs.
"""

from __future__ import annotations

import enum
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import torch
from grpo_scoring.groups import completion_offsets
from grpo_scoring.logprobs import CompletionLogprobs

from grpo_refserver.batcher import Batch, Batcher, Task
from grpo_refserver.engine import Engine
from grpo_refserver.metrics import Metrics
from grpo_refserver.model import LoadedModel

log = logging.getLogger(__name__)


class State(enum.Enum):
    """Where the server stands."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class NotServingError(Exception):
    """The server takes no request now."""

    def __init__(self, state: State) -> None:
        super().__init__(f"the server is {state.value}")
        self.state = state


class QueueFullError(Exception):
    """Too many tokens wait."""

    def __init__(self, waiting_tokens: int, retry_after: int) -> None:
        super().__init__(f"{waiting_tokens} tokens wait already")
        self.waiting_tokens = waiting_tokens
        self.retry_after = retry_after


class ScoringError(Exception):
    """The forward failed; the message says why and what to do."""


@dataclass(eq=False)
class _Open:
    """A task whose result is not complete: ``left`` groups are missing; group n goes to ``starts[n]``."""

    result: CompletionLogprobs
    starts: list[int]
    left: int
    future: Future[CompletionLogprobs] = field(default_factory=Future)

    @classmethod
    def of(cls, task: Task) -> _Open:
        bounds = completion_offsets(task.groups)
        values = np.full(int(bounds[-1]), np.nan, dtype=np.float32)
        starts = [0, *itertools.accumulate(group.completion_tokens for group in task.groups)]
        return cls(CompletionLogprobs(values, bounds), starts, len(task.groups))


class Worker:
    """One model, one thread, one queue.

    Args:
        load: makes the engine, in the thread; its exception ends the worker in state FAILED.
        batcher: the queue; it belongs to the worker from here on.
        max_queued_tokens: tokens that may wait, beyond those of the batch that runs.
        metrics: where it counts.
        on_change: called from the thread with each new state.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        batcher: Batcher,
        *,
        max_queued_tokens: int,
        metrics: Metrics,
        on_change: Callable[[State], None] = lambda _: None,
    ) -> None:
        self._load = load
        self._batcher = batcher
        self._max_queued_tokens = max_queued_tokens
        self._metrics = metrics
        self.on_change = on_change
        self._open: dict[Task, _Open] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._rate = 0.0  # tokens per second, smoothed
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self.state = State.LOADING
        self.failure: BaseException | None = None
        self.engine: Engine | None = None

    @property
    def loaded(self) -> LoadedModel | None:
        """What serves now; None before."""
        return self.engine.info if self.engine is not None else None

    def start(self) -> None:
        """Starts the thread: it loads the model, then serves."""
        self._thread.start()

    def drain(self) -> None:
        """Takes no more tasks; what was accepted is still scored."""
        with self._changed:
            if self.state is not State.FAILED:
                self._become(State.DRAINING)

    def abandon(self) -> None:
        """Gives up every task that is not answered yet: their futures raise NotServingError."""
        with self._changed:
            tasks = list(self._open)
        self._close(tasks, NotServingError(self.state))

    def stop(self, timeout: float) -> bool:
        """Ends the thread after the batch that runs; returns whether it ended in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def submit(self, task: Task) -> Future[CompletionLogprobs]:
        """Queues a task. Raises NotServingError or QueueFullError; the future ScoringError or NotServingError."""
        with self._changed:
            if self.state is not State.READY:
                raise NotServingError(self.state)
            waiting = self._batcher.waiting_tokens
            if waiting + task.waiting_tokens > self._max_queued_tokens:
                raise QueueFullError(waiting, self._retry_after(waiting))
            opened = _Open.of(task)
            self._open[task] = opened
            self._batcher.add(task)
            self._count_queue()
            self._changed.notify_all()
        return opened.future

    def cancel(self, task: Task) -> None:
        """Drops what is left of a task whose client no longer waits."""
        with self._changed:
            self._batcher.discard(task)
            opened = self._open.pop(task, None)
            self._count_queue()
        if opened is not None:
            opened.future.cancel()

    def _run(self) -> None:
        try:
            engine = self.engine = self._load()
            loaded = engine.info
            self._metrics.info.labels(loaded.name, loaded.version, loaded.dtype, loaded.device).set(1)
            with self._changed:
                if self.state is State.LOADING:
                    self._become(State.READY)
            while (batch := self._next()) is not None:
                self._serve(batch)
        except BaseException as error:  # noqa: BLE001  (the thread's last words: every cause must be seen)
            self._fail(error)

    def _next(self) -> Batch | None:
        """Waits for work; None to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or len(self._batcher) > 0)
            batch = None if self._stopping else self._batcher.next()
            self._count_queue()
            return batch

    def _serve(self, batch: Batch) -> None:
        begun = time.monotonic()
        try:
            scored = self._score(batch)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            self._reject(batch, "out of memory: lower --max-batch-tokens (spec.reference.maxBatchTokens) or add memory")
        except torch.AcceleratorError:
            raise  # the device is of no more use in this process
        except Exception as error:
            log.exception("scoring failed", extra={"groups": len(batch.parts)})
            self._reject(batch, f"{type(error).__name__} in the forward; the server's log has the details")
        else:
            seconds = time.monotonic() - begun
            self._deliver(batch, scored)
            self._measure(batch, seconds)

    def _score(self, batch: Batch) -> CompletionLogprobs:
        assert self.engine is not None
        scored = self.engine.score(batch.groups, batch.temperature)
        if not np.isfinite(scored.values).all():
            raise FloatingPointError("NaN or infinite log-probabilities: use another dtype or check the weights")
        return scored

    def _deliver(self, batch: Batch, scored: CompletionLogprobs) -> None:
        """Copies each group's values to its task, and answers the tasks that are complete."""
        ends = [0, *itertools.accumulate(group.completion_tokens for group in batch.groups)]
        done = []
        with self._changed:
            for (task, index), (first, last) in zip(batch.parts, itertools.pairwise(ends), strict=True):
                opened = self._open.get(task)
                if opened is None:  # cancelled meanwhile
                    continue
                start = opened.starts[index]
                opened.result.values[start : start + last - first] = scored.values[first:last]
                opened.left -= 1
                if not opened.left:
                    done.append(self._open.pop(task))
        for opened in done:
            if opened.future.set_running_or_notify_cancel():
                opened.future.set_result(opened.result)

    def _reject(self, batch: Batch, problem: str) -> None:
        self._close(batch.tasks, ScoringError(problem))

    def _close(self, tasks: list[Task], error: Exception) -> None:
        with self._changed:
            closed = [opened for task in tasks if (opened := self._open.pop(task, None))]
            for task in tasks:
                self._batcher.discard(task)
            self._count_queue()
        for opened in closed:
            if opened.future.set_running_or_notify_cancel():
                opened.future.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        with self._changed:
            self._become(State.FAILED)
            tasks = list(self._open)
        self._close(tasks, ScoringError("the model has failed; the server is ending"))

    def _become(self, state: State) -> None:
        self.state = state
        self._metrics.ready.set(state is State.READY)
        self.on_change(state)

    def _measure(self, batch: Batch, seconds: float) -> None:
        tokens = sum(group.tokens for group in batch.groups)
        rate = tokens / max(seconds, 1e-6)
        self._rate = rate if not self._rate else 0.8 * self._rate + 0.2 * rate
        self._metrics.batch(batch.groups, seconds)

    def _retry_after(self, waiting_tokens: int) -> int:
        """Whole seconds until about half of the queue is scored at the rate seen lately; 1 to 60."""
        if not self._rate:
            return 1
        return min(60, max(1, math.ceil(waiting_tokens / 2 / self._rate)))

    def _count_queue(self) -> None:
        self._metrics.queue_tokens.set(self._batcher.waiting_tokens)
        self._metrics.queue_requests.set(len(self._batcher))
