"""Conditions: the state aspect by aspect. Their transition times move only when their status does."""

from collections.abc import Sequence
from datetime import datetime

from grpo_api.v1alpha1 import Condition, ConditionType, GRPOJob

from grpo_operator import reasons
from grpo_operator.decision import Decision
from grpo_operator.policies import missing, startup_order
from grpo_operator.state import Fault, Observed

MESSAGE_LIMIT = 2048
REASON_LIMIT = 128


def update(job: GRPOJob, observed: Observed, decision: Decision, now: datetime) -> list[Condition]:
    """Return the conditions of the new status, in the order of ConditionType's words.

    Suspended, Succeeded and Failed appear once there is something to say; Stalled is not built yet.
    """
    wanted: list[tuple[ConditionType, bool, Fault]] = []
    if decision.phase in ("Succeeded", "Failed"):
        wanted += _reference_after_end(job, observed)
        wanted.append(("TrainerReady", False, Fault(decision.reason, "the job has ended")))
        wanted.append((decision.phase, True, Fault(decision.reason, decision.message)))
    else:
        wanted.append(_accepted(observed))
        wanted.append(_reference(job, observed, decision))
        running = decision.phase == "Running"
        wanted.append(("TrainerReady", running, Fault(decision.reason, decision.message)))
        wanted += _suspended(job.status.conditions, decision)
    old = {condition.type: condition for condition in job.status.conditions}
    new = {
        name: _condition(old.get(name), name, holds, why, now, job.metadata.generation) for name, holds, why in wanted
    }
    order = ("Accepted", "ReferenceReady", "TrainerReady", "Suspended", "Stalled", "Succeeded", "Failed")
    merged = {**old, **new}
    return [merged[name] for name in order if name in merged]


def holds(conditions: Sequence[Condition], name: ConditionType) -> bool:
    """Whether the condition is there and True."""
    return any(condition.type == name and condition.status == "True" for condition in conditions)


def _condition(
    old: Condition | None, name: ConditionType, is_true: bool, why: Fault, now: datetime, generation: int
) -> Condition:
    new = Condition(
        type=name,
        status="True" if is_true else "False",
        reason=why.reason[:REASON_LIMIT],
        message=why.message[:MESSAGE_LIMIT],
        last_transition_time=now,
        observed_generation=generation,
    )
    if old is not None and old.status == new.status:
        new.last_transition_time = old.last_transition_time
    return new


def _accepted(observed: Observed) -> tuple[ConditionType, bool, Fault]:
    lacking = missing.missing(observed)
    return "Accepted", lacking is None, lacking or Fault(reasons.ACCEPTED, "the spec is valid and all it names exists")


def _reference(job: GRPOJob, observed: Observed, decision: Decision) -> tuple[ConditionType, bool, Fault]:
    if not job.spec.uses_reference:
        return "ReferenceReady", True, Fault(reasons.REFERENCE_NOT_NEEDED, "optimization.beta is 0")
    if not job.spec.runs_reference:
        return "ReferenceReady", True, Fault(reasons.REFERENCE_EXTERNAL, f"{job.spec.reference.url} is used")
    if decision.phase == "Suspended":
        return "ReferenceReady", False, Fault(reasons.SUSPENDED, "scaled to 0 while spec.suspend is set")
    waiting = startup_order.wait_for_reference(job, observed)
    if waiting:
        return "ReferenceReady", False, waiting
    replicas = job.spec.reference.replicas
    return "ReferenceReady", True, Fault(reasons.REFERENCE_READY, f"{replicas} of {replicas} replicas answer")


def _reference_after_end(job: GRPOJob, observed: Observed) -> list[tuple[ConditionType, bool, Fault]]:
    if not job.spec.runs_reference or job.spec.cleanup_policy == "Retain":
        return []
    if observed.reference.exists or observed.reference.pods:
        return []  # not gone yet: what was said last stays
    return [("ReferenceReady", False, Fault(reasons.REFERENCE_REMOVED, "deleted at the end (spec.cleanupPolicy)"))]


def _suspended(old: Sequence[Condition], decision: Decision) -> list[tuple[ConditionType, bool, Fault]]:
    if decision.phase == "Suspended":
        return [("Suspended", decision.reason == reasons.SUSPENDED, Fault(decision.reason, decision.message))]
    if any(condition.type == "Suspended" for condition in old):
        return [("Suspended", False, Fault(reasons.RESUMED, "spec.suspend was taken back"))]
    return []
