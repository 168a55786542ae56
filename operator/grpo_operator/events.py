"""Events: what changed between the old status and the new, as the lines of a story."""

from grpo_api.v1alpha1 import GRPOJob, Status

from grpo_operator import reasons
from grpo_operator.conditions import MESSAGE_LIMIT, holds
from grpo_operator.decision import Decision
from grpo_operator.state import Event

_END = ("Succeeded", "Failed")
_TURNS = frozenset(
    {
        reasons.REFERENCE_STARTING,
        reasons.TRAINER_LOADING,
        reasons.TRAINING,
        reasons.SUSPENDING,
        reasons.SUSPENDED,
    }
)
_WARNINGS = frozenset({reasons.REFERENCE_NOT_READY, reasons.WAITING_FOR_PODS})
_IMAGE_PULL = {reasons.ERR_IMAGE_PULL, reasons.IMAGE_PULL_BACK_OFF}
"""Reasons between which the kubelet goes to and fro."""


def events(job: GRPOJob, old: Status, new: Status, decision: Decision) -> tuple[Event, ...]:
    """Return the events of the step from `old` to `new`; none where nothing of interest changed."""
    found = [
        *_accepted(job, old, new),
        *_reference(job, old, new),
        *_termination(old, new),
        *_abandoned(decision),
        *_attempt(job, old, new),
        *_phase(old, new, decision),
    ]
    return tuple(Event(event.type, event.reason, event.message[:MESSAGE_LIMIT]) for event in found)


def _accepted(job: GRPOJob, old: Status, new: Status) -> list[Event]:
    if holds(old.conditions, "Accepted") or not holds(new.conditions, "Accepted") or new.phase in _END:
        return []
    spec = job.spec
    world = f"{spec.trainer.replicas} × {spec.trainer.processes_per_pod} ranks"
    return [Event("Normal", reasons.ACCEPTED, f"{spec.model.name} is to be trained on {spec.dataset.name} by {world}")]


def _reference(job: GRPOJob, old: Status, new: Status) -> list[Event]:
    if not job.spec.runs_reference or new.phase in _END:
        was = [condition.reason for condition in old.conditions if condition.type == "ReferenceReady"]
        now = [condition.reason for condition in new.conditions if condition.type == "ReferenceReady"]
        if now == [reasons.REFERENCE_REMOVED] != was:
            return [Event("Normal", reasons.REFERENCE_REMOVED, "the reference server was deleted")]
        return []
    if holds(new.conditions, "ReferenceReady") and not holds(old.conditions, "ReferenceReady"):
        url = new.reference.url if new.reference else ""
        return [Event("Normal", reasons.REFERENCE_READY, f"the reference server answers at {url}")]
    return []


def _termination(old: Status, new: Status) -> list[Event]:
    was = old.trainer.last_termination if old.trainer else None
    ended = new.trainer.last_termination if new.trainer else None
    if ended is None or ended == was or ended.cause in ("Suspend", "Permanent") or new.phase in _END:
        return []  # a permanent end is told with the job's
    return [Event("Warning", ended.reason, f"attempt {ended.attempt} ended: {ended.message}")]


def _abandoned(decision: Decision) -> list[Event]:
    if not decision.abandoned:
        return []
    names = ", ".join(decision.abandoned)
    return [Event("Warning", reasons.PODS_NOT_GONE, f"{names} did not end; the next attempt waits no longer")]


def _attempt(job: GRPOJob, old: Status, new: Status) -> list[Event]:
    if new.trainer is None or (old.trainer is not None and old.trainer.attempt == new.trainer.attempt):
        return []
    number, replicas = new.trainer.attempt, job.spec.trainer.replicas
    pods = "1 pod" if replicas == 1 else f"{replicas} pods"
    message = f"attempt {number} starts: {pods}"
    if number:
        limit = job.spec.failure_policy.max_restarts
        message += f", from the newest checkpoint (restarts {new.restarts} of {limit}, disruptions {new.disruptions})"
    return [Event("Normal", reasons.ATTEMPT_STARTED, message)]


def _phase(old: Status, new: Status, decision: Decision) -> list[Event]:
    """Events of the reason: faults as they come up, and the turns of the course."""
    reason, message = new.reason or "", new.message or ""
    if new.phase in _END:
        if old.phase == new.phase:
            return []
        told = [Event("Normal" if new.phase == "Succeeded" else "Warning", reason, message)]
        if decision.exhausted:
            used = f"the job has failed: {new.restarts} restarts are used up"
            told.append(Event("Warning", reasons.MAX_RESTARTS_REACHED, used))
        return told
    if reason == old.reason or {reason, old.reason} == _IMAGE_PULL:
        return []
    last = new.trainer.last_termination if new.trainer else None
    if last is not None and new.phase == "Restarting" and reason == last.reason:
        return []  # told when it ended
    known = reasons.REASONS.get(reason)
    if reason in _TURNS:
        return [Event("Normal", reason, message)]
    if known is None or known.section in (reasons.MISSING, reasons.REFUSED, reasons.PODS) or reason in _WARNINGS:
        return [Event("Warning", reason, message)]
    return []
