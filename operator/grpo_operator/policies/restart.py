"""What follows an attempt that ended badly: nothing more, a wait, or the next attempt.

The whole gang starts anew, from the newest complete checkpoint. Before it does, the pods of the old one must be
really gone, since two attempts must not write at once; that wait is bounded, because a node that does not answer
never tells (an older attempt then cannot write checkpoints any more: the trainer refuses).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from grpo_api.v1alpha1 import GRPOJob, LastTermination, Status

from grpo_operator import reasons
from grpo_operator.policies.ledger import Ledger
from grpo_operator.state import Limits, Observed, Pod


@dataclass(frozen=True)
class Fail:
    """The job has failed."""

    exhausted: bool
    """By maxRestarts, and not by a permanent exit code."""


@dataclass(frozen=True)
class Listen:
    """The job is about to fail, but pods that still end may say why."""

    seconds: float
    """How long they have."""
    pods: tuple[Pod, ...]


@dataclass(frozen=True)
class Wait:
    """The next attempt may not start yet."""

    seconds: float
    """Until it may, as far as is known."""
    pods: tuple[Pod, ...]
    """Pods that have to be gone first; empty: it is the back-off."""


@dataclass(frozen=True)
class Go:
    """The next attempt may start."""

    left: tuple[Pod, ...]
    """Pods of older attempts that are not gone though the wait for them is over."""


def decide(
    job: GRPOJob, ledger: Ledger, ended: LastTermination, observed: Observed, now: datetime, limits: Limits
) -> Fail | Listen | Wait | Go:
    """Return what follows now that the present attempt has `ended`."""
    live = tuple(pod for attempt in observed.attempts for pod in attempt.live)
    if ended.cause == "Permanent":
        seconds = (ended.time - now).total_seconds() + limits.words
        wordless = ended.reason == reasons.PERMANENT_ERROR
        return Listen(seconds, live) if wordless and live and seconds > 0 else Fail(exhausted=False)
    patience = timedelta(seconds=job.spec.trainer.termination_grace_period_seconds + limits.gone)
    waited = now - ended.time
    if live and waited < patience:
        return Wait((patience - waited).total_seconds(), live)
    # Not before all pods have ended: the gravest cause may be the last that is seen.
    if ended.cause in ("Crash", "Retry") and ledger.restarts >= job.spec.failure_policy.max_restarts:
        return Fail(exhausted=True)
    rest = next_start(ledger, ended, limits) - now
    if rest > timedelta(0) or not is_written(job.status, ended):
        return Wait(max(0.0, rest.total_seconds()), ())
    return Go(live)


def next_start(ledger: Ledger, ended: LastTermination, limits: Limits) -> datetime:
    """Return when the back-off is over: exponential in the restarts so far, bounded; none after a suspension."""
    if ended.cause == "Suspend":
        return ended.time
    doublings = ledger.restarts if ended.cause != "Disruption" else 0
    return ended.time + timedelta(seconds=min(limits.backoff_max, limits.backoff * 2.0 ** min(doublings, 32)))


def is_written(status: Status, ended: LastTermination) -> bool:
    """Whether the status that was last written knows of this end; see `ledger` for why that matters."""
    written = status.trainer.last_termination if status.trainer else None
    return written is not None and written.attempt == ended.attempt and written.cause == ended.cause
