"""The status as a pure function of what was observed and decided."""

import math
from datetime import datetime

from grpo_api.progress import Progress
from grpo_api.v1alpha1 import GRPOJob, ProgressStatus, ReferenceStatus, Status, TrainerStatus

from grpo_operator import conditions, environment
from grpo_operator.decision import Decision
from grpo_operator.policies import finished
from grpo_operator.policies.ledger import Ledger
from grpo_operator.state import Attempt, Limits, Observed


def build(job: GRPOJob, observed: Observed, decision: Decision, now: datetime, limits: Limits) -> Status:
    """Return the whole new status. Times are whole seconds, as Kubernetes writes them."""
    now = now.replace(microsecond=0)
    old = job.status
    ended = decision.phase in ("Succeeded", "Failed")
    current = next((attempt for attempt in observed.attempts if attempt.number == decision.ledger.attempt), None)
    progress = _progress(job, observed, decision, current, now, limits)
    return Status(
        phase=decision.phase,
        reason=decision.reason[: conditions.REASON_LIMIT],
        message=decision.message[: conditions.MESSAGE_LIMIT],
        conditions=conditions.update(job, observed, decision, now),
        observed_generation=job.metadata.generation,
        start_time=old.start_time or (now if decision.phase != "Suspended" else None),
        completion_time=old.completion_time or (now if ended else None),
        restarts=decision.ledger.restarts,
        disruptions=decision.ledger.disruptions,
        reference=_reference(job, observed, decision, is_new=progress != old.progress),
        trainer=_trainer(job, decision, current),
        progress=progress,
        model_path=decision.model_path,
    )


def _reference(job: GRPOJob, observed: Observed, decision: Decision, *, is_new: bool) -> ReferenceStatus | None:
    """Return the reference's part; its version is the trainer's to tell, and changes with the progress (`is_new`)."""
    if not job.spec.uses_reference:
        return None
    version = _version(job)
    told = observed.progress
    if is_new and told is not None and told.attempt == decision.ledger.attempt:
        version = told.reference_version or version
    return ReferenceStatus(
        url=environment.reference_url(job, observed.places),
        version=version,
        ready_replicas=observed.reference.ready,
    )


def _version(job: GRPOJob) -> str | None:
    """Return the version of the reference as the status has it."""
    return job.status.reference.version if job.status.reference else None


def _trainer(job: GRPOJob, decision: Decision, current: Attempt | None) -> TrainerStatus | None:
    ledger: Ledger = decision.ledger
    if ledger.attempt is None:
        return None
    pods = current.pods if current is not None else ()
    last = ledger.last
    return TrainerStatus(
        attempt=ledger.attempt,
        ready=sum(pod.phase == "running" and pod.ready for pod in pods),
        desired=job.spec.trainer.replicas if decision.start else 0,
        last_termination=last.model_copy(update={"time": last.time.replace(microsecond=0)}) if last else None,
    )


def _progress(
    job: GRPOJob, observed: Observed, decision: Decision, current: Attempt | None, now: datetime, limits: Limits
) -> ProgressStatus | None:
    """Return the progress: the old one unless it is old enough and the present attempt tells something new.

    A numbers' life: kept over a restart until the next attempt reports, and completed at the end from the
    trainer's last words, since rank 0 may be gone before it is asked again.
    """
    old = job.status.progress
    if finished.is_finished(job.status):
        return old
    told = observed.progress
    new = old
    if told is not None and told.attempt == decision.ledger.attempt and decision.phase != "Suspended":
        age = math.inf if old is None or old.last_update_time is None else (now - old.last_update_time).total_seconds()
        fresh = _of(told, now)
        last = told.total_steps is not None and told.step >= told.total_steps and (old is None or old.step < told.step)
        changed = old is None or not _same(old, fresh) or told.reference_version not in (None, _version(job))
        if (age >= limits.progress or last) and changed:
            new = fresh
    if decision.phase == "Succeeded" and current is not None:
        new = _completed(job, new, current, now)
    return new


def _of(told: Progress, now: datetime) -> ProgressStatus:
    return ProgressStatus(
        step=told.step,
        total_steps=told.total_steps,
        steps=steps(told.step, told.total_steps),
        reward=_finite(told.reward),
        kl=_finite(told.kl),
        loss=_finite(told.loss),
        tokens_per_second=_finite(told.tokens_per_second),
        last_step_time=told.last_step_time,
        checkpoint_step=told.checkpoint_step,
        eta_seconds=_finite(told.eta_seconds),
        last_update_time=now,
    )


def _completed(job: GRPOJob, progress: ProgressStatus | None, attempt: Attempt, now: datetime) -> ProgressStatus | None:
    words = finished.last_words(attempt)
    limit = job.spec.optimization.max_steps
    total = (progress.total_steps if progress else None) or (limit if limit > 0 else None)
    step = words.step if words is not None and words.step is not None else total
    if step is None:
        return progress
    total = total or step
    done = {"step": step, "total_steps": total, "steps": steps(step, total), "eta_seconds": 0.0}
    return (progress or ProgressStatus()).model_copy(update={**done, "last_update_time": now})


def steps(step: int, total: int | None) -> str:
    """Return the two numbers as text: `37/200`; the total is `?` until the dataset is read."""
    return f"{step}/{total if total is not None else '?'}"


def _same(old: ProgressStatus, new: ProgressStatus) -> bool:
    return old == new.model_copy(update={"last_update_time": old.last_update_time})


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
