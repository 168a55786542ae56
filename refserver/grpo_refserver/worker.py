"""The thread that owns the model: loads it, scores what waits, batch after batch, and swaps versions in between.

The event loop never waits for a forward, so health checks answer while one runs. Versions are loaded by a thread of
their own (``staging.py``) while this one goes on scoring.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import torch
from grpo_scoring.logprobs import CompletionLogprobs

from grpo_refserver.batcher import Batch, Batcher, Task
from grpo_refserver.drain_rate import DrainRate
from grpo_refserver.engine import Engine, EngineFailedError, Staged, VersionError
from grpo_refserver.metrics import Metrics
from grpo_refserver.model import LoadedModel
from grpo_refserver.open_tasks import OpenTasks
from grpo_refserver.staging import Outcome, Stager

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


class ExpiredError(Exception):
    """The deadline has passed before the task was scored."""


class Worker:
    """One engine, one thread, one queue.

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
        self._open = OpenTasks()
        self._changed = threading.Condition()
        self._stopping = False
        self._rate = DrainRate()
        self._stager = Stager(self._changed, self._staged)
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        metrics.queue_age.set_function(self._queue_age)
        metrics.staging.set_function(lambda: float(self._stager.running is not None))
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
        """Ends after the batch that runs; returns whether nothing runs any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout
        self._thread.join(timeout)
        return not self._thread.is_alive() and self._stager.join(max(0.0, deadline - time.monotonic()))

    def submit(self, task: Task) -> Future[CompletionLogprobs]:
        """Queues a task.

        A task without groups is done when its version is loaded. Raises NotServingError or QueueFullError; the future
        raises ScoringError, VersionError, ExpiredError or NotServingError.
        """
        with self._changed:
            if self.state is not State.READY:
                raise NotServingError(self.state)
            excess = self._batcher.waiting_tokens + task.waiting_tokens - self._max_queued_tokens
            if excess > 0:
                raise QueueFullError(self._batcher.waiting_tokens, self._rate.retry_after(excess))
            opened = self._open.add(task)
            self._batcher.add(task)
            assert self.engine is not None
            self._want_next(self.engine)
            self._count_queue()
            self._changed.notify_all()
        return opened.future

    def cancel(self, task: Task) -> None:
        """Drops what is left of a task whose client no longer waits."""
        with self._changed:
            self._batcher.discard(task)
            opened = self._open.pop(task)
            self._count_queue()
            self._changed.notify_all()  # what it held up can go on
        if opened is not None:
            opened.future.cancel()

    def _run(self) -> None:
        try:
            engine = self.engine = self._load()
            try:
                self._metrics.loaded(engine.info)
                with self._changed:
                    if self.state is State.LOADING:
                        self._become(State.READY)
                while (work := self._next(engine)) is not None:
                    if isinstance(work, Batch):
                        self._serve(engine, work)
                    else:
                        self._swap(engine, work)
            finally:
                engine.close()
        except BaseException as error:  # noqa: BLE001  (the thread's last words: every cause must be seen)
            self._fail(error)

    def _next(self, engine: Engine) -> Batch | Staged | None:
        """Waits for something to do; None to stop."""
        with self._changed:
            while not self._stopping:
                loaded = engine.info.version
                self._close(self._batcher.expired(time.monotonic()), ExpiredError())
                self._answer_loaded(loaded)
                wanted = self._want_next(engine)
                staged = self._stager.staged
                batch = self._batcher.next(loaded, engine.batch_tokens, staged.version if staged else None)
                self._count_queue()
                if batch is not None:
                    return batch
                if wanted is not None and self._stager.holds(wanted[0]):
                    return self._stager.take()
                self._changed.wait()
            return None

    def _want_next(self, engine: Engine) -> tuple[str, Path | None] | None:
        """Starts to load the version that is wanted next, if one is and nothing is being loaded. With the lock held."""
        wanted = self._batcher.next_version(engine.info.version)
        if wanted is not None:
            self._stager.want(*wanted, engine.stage)
        return wanted

    def _answer_loaded(self, version: str) -> None:
        """Answers those who only waited for this version to be loaded. With the lock held."""
        for task in self._batcher.wanting(version):
            if not task.groups:
                self._batcher.discard(task)
                if opened := self._open.pop(task):
                    opened.answer()

    def _staged(self, version: str, path: Path | None, outcome: Outcome) -> None:
        """From the staging thread, with the lock held: a version is ready, or cannot be had."""
        refused = outcome if isinstance(outcome, VersionError) else None
        self._metrics.staged(refused)
        if refused is not None:
            log.warning("version refused", extra={"version": version, "why": str(refused)})
            self._close([task for task in self._batcher.wanting(version) if task.path == path], refused)
        self._changed.notify_all()

    def _swap(self, engine: Engine, staged: Staged) -> None:
        begun = time.monotonic()
        before = engine.info.version
        engine.swap(staged)
        self._metrics.loaded(engine.info)
        self._metrics.swaps.inc()
        seconds = f"{time.monotonic() - begun:.3f}"
        log.info("version swapped", extra={"version": engine.info.version, "before": before, "seconds": seconds})

    def _serve(self, engine: Engine, batch: Batch) -> None:
        begun = time.monotonic()
        try:
            scored = engine.score(batch.groups, batch.temperature)
            if not np.isfinite(scored.values).all():
                raise FloatingPointError("NaN or infinite log-probabilities: use another dtype or check the weights")
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            self._reject(batch, "out of memory: lower --max-batch-tokens (spec.reference.maxBatchTokens) or add memory")
        except (torch.AcceleratorError, EngineFailedError):
            raise  # the device is of no more use in this process
        except Exception as error:
            log.exception("scoring failed", extra={"groups": len(batch.parts)})
            self._reject(batch, f"{type(error).__name__} in the forward; the server's log has the details")
        else:
            seconds = time.monotonic() - begun
            limit = self._batcher.max_batch_tokens
            self._metrics.batch(batch.groups, seconds, cost=batch.cost, max_batch_tokens=limit)
            with self._changed:
                complete = self._open.deliver(batch, scored, begun, seconds)
                self._rate.add(sum(group.tokens for group in batch.groups), seconds)
            for opened in complete:
                opened.answer()

    def _reject(self, batch: Batch, problem: str) -> None:
        self._close(batch.tasks, ScoringError(problem))

    def _close(self, tasks: Iterable[Task], error: Exception) -> None:
        with self._changed:
            closed = [opened for task in tasks if (opened := self._open.pop(task))]
            for task in tasks:
                self._batcher.discard(task)
            self._count_queue()
        for opened in closed:
            opened.fail(error)

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

    def _queue_age(self) -> float:
        with self._changed:
            oldest = self._batcher.oldest
            return self._open.age(oldest) if oldest is not None else 0.0

    def _count_queue(self) -> None:
        self._metrics.queue_tokens.set(self._batcher.waiting_tokens)
        self._metrics.queue_requests.set(len(self._batcher))
