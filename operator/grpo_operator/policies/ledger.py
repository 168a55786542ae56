"""Which attempt is the present one, and how many were counted: crash-safe, whatever write was lost.

Two things make it safe. An attempt's end is written to the status before the next attempt is made (`restart`
sees to that), and the counts move in the same write as the number of the attempt. So whether the operator dies
before or after that write, the next run counts from the same recorded cause, once.
"""

from dataclasses import dataclass, replace

from grpo_api.v1alpha1 import LastTermination, Status

from grpo_operator.state import Observed


@dataclass(frozen=True)
class Ledger:
    """The counts of a job."""

    attempt: int | None
    """Number of the present attempt; None before the first."""
    restarts: int
    disruptions: int
    last: LastTermination | None
    """How the newest ended attempt ended."""

    @property
    def ended(self) -> LastTermination | None:
        """How the present attempt ended, if it did."""
        return self.last if self.last is not None and self.last.attempt == self.attempt else None


def read(status: Status, observed: Observed) -> Ledger:
    """Return the counts: those of the status, moved on to the newest attempt there is."""
    trainer = status.trainer
    ledger = Ledger(
        attempt=trainer.attempt if trainer else None,
        restarts=status.restarts,
        disruptions=status.disruptions,
        last=trainer.last_termination if trainer else None,
    )
    newest = max((attempt.number for attempt in observed.attempts if attempt.exists or attempt.live), default=None)
    if newest is None or (ledger.attempt is not None and newest <= ledger.attempt):
        return ledger
    return advance(ledger, newest)


def advance(ledger: Ledger, number: int) -> Ledger:
    """Return the counts once attempt `number` is the present one.

    Attempts that the status knows nothing of (it was lost, or edited by hand) count as restarts, so that
    maxRestarts holds whatever happened.
    """
    known = -1 if ledger.attempt is None else ledger.attempt
    unknown = number - known - 1
    restarts, disruptions = ledger.restarts + unknown, ledger.disruptions
    if ledger.attempt is not None:
        cause = ledger.ended.cause if ledger.ended else "Crash"
        restarts += cause not in ("Disruption", "Suspend")
        disruptions += cause == "Disruption"
    return replace(ledger, attempt=number, restarts=restarts, disruptions=disruptions)
