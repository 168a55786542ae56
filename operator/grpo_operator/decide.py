"""The rules in their order: a job's end first, then suspension, then a new attempt, then the one that runs."""

from dataclasses import replace
from datetime import datetime, timedelta

from grpo_api.v1alpha1 import GRPOJob, LastTermination, Phase

from grpo_operator import reasons, waits
from grpo_operator.decision import Decision
from grpo_operator.policies import cause, cleanup, finished, ledger, missing, restart, startup_order, suspend
from grpo_operator.policies.ledger import Ledger
from grpo_operator.state import Attempt, Fault, Limits, Observed


def decide(job: GRPOJob, observed: Observed, now: datetime, limits: Limits) -> Decision:
    """Apply the rules, the ones that end a job first."""
    counts = ledger.read(job.status, observed)
    current = next((attempt for attempt in observed.attempts if attempt.number == counts.attempt), None)
    if finished.is_finished(job.status):
        return _stay_finished(job, observed, counts, now, limits)
    if current is not None and finished.succeeded(current):
        return _finish(
            job,
            observed,
            counts,
            Fault(reasons.SUCCEEDED, "the target step is reached"),
            model_path=finished.model_path(current, observed),
        )
    if current is not None and cause.failed(current):
        if job.spec.suspend and cause.deleted(current):
            # By us, in a run whose status was not written: what its pods die of tells nothing.
            counts = replace(counts, last=suspend.end_attempt(counts, now))
        else:
            counts = replace(counts, last=cause.gravest(counts.last, cause.find(current, now)))
    if counts.ended and counts.ended.cause == "Permanent":
        return _restart(job, observed, counts, counts.ended, now, limits)
    failure = startup_order.reference_failed(job, observed)
    # An attempt that runs waits for the reference within its own deadline, and ends with 75 if that passes.
    runs = current is not None and current.exists and counts.ended is None
    if failure and not runs:
        return _finish(job, observed, counts, failure)
    if job.spec.suspend:
        return _suspend(job, observed, replace(counts, last=suspend.end_attempt(counts, now)), limits)
    if counts.ended:
        return _restart(job, observed, counts, counts.ended, now, limits)
    if current is None or not current.exists:
        return _start(job, observed, counts, limits)
    return _run(job, observed, counts, current, limits)


def _stay_finished(job: GRPOJob, observed: Observed, counts: Ledger, now: datetime, limits: Limits) -> Decision:
    assert job.status.phase is not None
    left = any(attempt.live for attempt in observed.attempts)
    older = cleanup.older_attempts(observed, counts.attempt or 0)
    stuck = cleanup.stuck_attempts(job, observed, now, limits)
    return Decision(
        phase=job.status.phase,
        reason=job.status.reason or "",
        message=job.status.message or "",
        ledger=counts,
        remove_reference=cleanup.removes_reference(job),
        remove_attempts=tuple(sorted({*older, *stuck})),
        look_again=limits.recheck if left else None,
        model_path=job.status.model_path,
    )


def _finish(job: GRPOJob, observed: Observed, counts: Ledger, why: Fault, model_path: str | None = None) -> Decision:
    done = why.reason == reasons.SUCCEEDED
    message = f"{why.message}; the model lies in {model_path}" if model_path else why.message
    return Decision(
        phase="Succeeded" if done else "Failed",
        reason=why.reason,
        message=message,
        ledger=counts,
        remove_reference=cleanup.removes_reference(job),
        remove_attempts=cleanup.older_attempts(observed, counts.attempt or 0),
        model_path=model_path,
    )


def _suspend(job: GRPOJob, observed: Observed, counts: Ledger, limits: Limits) -> Decision:
    trainers, references = suspend.running(observed)
    names = [pod.name for pod in trainers] + ([f"{references} reference pods"] if references else [])
    idle = "nothing runs; set spec.suspend to false to go on"
    return Decision(
        phase="Suspended",
        reason=reasons.SUSPENDING if names else reasons.SUSPENDED,
        message=f"waiting for {', '.join(names)} to end" if names else idle,
        ledger=counts,
        reference=0 if observed.reference.exists else None,
        remove_attempts=tuple(sorted(attempt.number for attempt in observed.attempts)),
        look_again=limits.recheck if names else None,
    )


def _restart(
    job: GRPOJob, observed: Observed, counts: Ledger, ended: LastTermination, now: datetime, limits: Limits
) -> Decision:
    """Wait for the end of the old attempt and of the back-off, then start the next one, or give up."""
    told = f"attempt {ended.attempt} ended: {ended.message}"
    # An attempt that we end ourselves must go; of any other, the Job controller ends what is left.
    resuming = ended.cause == "Suspend"
    gone = tuple(sorted(attempt.number for attempt in observed.attempts)) if resuming else ()
    phase: Phase = "Starting" if resuming else "Restarting"
    match restart.decide(job, counts, ended, observed, now, limits):
        case restart.Fail(exhausted=True):
            limit = job.spec.failure_policy.max_restarts
            why = Fault(ended.reason, f"{told} (failurePolicy.maxRestarts {limit} is used up)")
            return replace(_finish(job, observed, counts, why), exhausted=True)
        case restart.Fail():
            return _finish(job, observed, counts, Fault(ended.reason, ended.message))
        case restart.Listen(seconds, pods):
            names = ", ".join(pod.name for pod in pods)
            why = Fault(ended.reason, f"{told}; {names} may say why")
            return _waiting(job, observed, counts, why, "Running", seconds, ())
        case restart.Wait(seconds, pods) if pods:
            names = ", ".join(pod.name for pod in pods)
            until = (now + timedelta(seconds=seconds)).strftime("%H:%M:%SZ")
            waiting = f"{told}; the next attempt waits for {names} to end, until {until} at the latest"
            # The reason stays the cause; only a suspension has none to tell.
            reason = reasons.WAITING_FOR_PODS if resuming else ended.reason
            wait = min(seconds, limits.recheck)
            return _waiting(job, observed, counts, Fault(reason, waiting), phase, wait, gone)
        case restart.Wait(seconds, _):
            at = restart.next_start(counts, ended, limits).strftime("%H:%M:%SZ")
            waiting = f"{told}; the next attempt starts at {at}"
            return _waiting(job, observed, counts, Fault(ended.reason, waiting), phase, seconds, gone)
        case restart.Go(left):
            abandoned = tuple(pod.name for pod in left)
            return _start(job, observed, counts, limits, ended=ended, abandoned=abandoned)


def _start(
    job: GRPOJob,
    observed: Observed,
    counts: Ledger,
    limits: Limits,
    ended: LastTermination | None = None,
    abandoned: tuple[str, ...] = (),
) -> Decision:
    """Start the present attempt, or the next one after `ended`, unless something has to be there first."""
    restarting = ended is not None and ended.cause != "Suspend"
    phase: Phase
    lacking = missing.missing(observed)
    if lacking:
        phase = "Restarting" if restarting else "Pending"
        return _waiting(job, observed, counts, lacking, phase, limits.recheck, ())
    waiting = startup_order.wait_for_reference(job, observed)
    refused = reasons.first(observed.refusals)
    if waiting:
        phase = "Restarting" if restarting else "Starting"
        return _waiting(job, observed, counts, refused or waiting, phase, limits.recheck, ())
    number = 0 if counts.attempt is None else counts.attempt + (ended is not None)
    counts = counts if number == counts.attempt else ledger.advance(counts, number)
    starting = Fault(reasons.TRAINER_STARTING, f"attempt {number}: {_pods(job.spec.trainer.replicas)} start")
    shown = refused or starting
    return Decision(
        phase="Starting",
        reason=shown.reason,
        message=shown.message,
        ledger=counts,
        start=True,
        reference=_replicas(job),
        prepare=True,
        remove_attempts=cleanup.older_attempts(observed, number),
        look_again=limits.recheck,
        abandoned=abandoned,
    )


def _run(job: GRPOJob, observed: Observed, counts: Ledger, current: Attempt, limits: Limits) -> Decision:
    """The present attempt is there: keep it, and say how it does."""
    running = waits.all_run(job, current)
    shown = waits.of_running(job, observed, current) if running else waits.of_starting(job, observed, current)
    return Decision(
        phase="Running" if running else "Starting",
        reason=shown.reason,
        message=shown.message,
        ledger=counts,
        start=True,
        reference=_replicas(job),
        prepare=True,
        remove_attempts=cleanup.older_attempts(observed, current.number),
        look_again=limits.progress if running else limits.recheck,
    )


def _waiting(
    job: GRPOJob,
    observed: Observed,
    counts: Ledger,
    why: Fault,
    phase: Phase,
    seconds: float,
    remove: tuple[int, ...],
) -> Decision:
    """No attempt may start now; the reference server is kept meanwhile, or made unless something is missing."""
    blocked = bool(observed.missing) and not observed.reference.exists
    return Decision(
        phase=phase,
        reason=why.reason,
        message=why.message,
        ledger=counts,
        reference=None if blocked else _replicas(job),
        prepare=not blocked,
        remove_attempts=remove,
        look_again=seconds,
    )


def _replicas(job: GRPOJob) -> int | None:
    return job.spec.reference.replicas if job.spec.runs_reference else None


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
