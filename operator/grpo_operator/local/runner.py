"""`grpo run`: the reconcile loop over local processes, from a manifest to its end."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType

from grpo_api.v1alpha1 import GRPOJob, Status

from grpo_operator.local.adapter import LocalAdapter
from grpo_operator.local.run_files import RunFiles
from grpo_operator.plan import plan
from grpo_operator.policies.finished import is_finished
from grpo_operator.state import Event, Limits, Observed

LIMITS = Limits(backoff=5, backoff_max=60, gone=30, recheck=5, progress=1)
"""Waits of a local run: there is no node to come back and no registry to recover."""

TICK = 0.2
"""Seconds between two looks."""

_MARGIN = 15.0
"""Seconds beyond the grace period, for the reference server to end after the trainer."""

Watcher = Callable[[GRPOJob, Observed, tuple[Event, ...]], None]
"""Is told, at every look, the job with its status, what was observed, and the events since the last look."""


class RunInterruptedError(Exception):
    """The run was ended by a signal."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


@dataclass
class Runner:
    """One run."""

    job: GRPOJob
    files: RunFiles
    adapter: LocalAdapter
    watch: Watcher
    say: Callable[[str], None]
    """Is told in a sentence what an early end waits for."""
    limits: Limits = LIMITS

    def run(self) -> Status:
        """Run the job to its end and return its last status. Whatever happens, no process is left behind.

        Raises:
            RunInterruptedError: SIGINT, SIGTERM or SIGHUP came; the trainer was given its grace period to save.
        """
        try:
            with _signals_raise():
                while not (is_finished(self.job.status) and not self.adapter.live):
                    self._look()
                    time.sleep(TICK)
            return self.job.status
        except BaseException:
            self._end_early()
            raise
        finally:
            self.adapter.kill()

    def _look(self) -> None:
        self.adapter.tick()
        observed = self.adapter.observe()
        made = plan(self.job, observed, datetime.now(UTC), self.limits)
        self.adapter.carry_out(made)
        if made.status != self.job.status:
            self.job = self.job.model_copy(update={"status": made.status})
            self.files.save(self.job)
        self.watch(self.job, observed, made.events)

    def _end_early(self) -> None:
        """Let the trainer save; a second signal kills at once."""
        grace = float(self.job.spec.trainer.termination_grace_period_seconds)
        with _signals_raise():
            try:
                self.adapter.end()
                if self.adapter.live:
                    self.say(f"the trainer has {grace:.0f} s to save a checkpoint; Ctrl-C again ends it at once")
                if not self.adapter.wait_for_end(grace + _MARGIN):
                    self.say("time is up: what still runs is killed")
            except RunInterruptedError:
                self.say("what still runs is killed")


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Turn the signals that end a program into `RunInterruptedError`: everything is cleaned up on the way out."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise RunInterruptedError(signal.Signals(number))

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
