"""Why the present attempt does not advance, seen from its pods, the reference and what the API server refused."""

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator import reasons
from grpo_operator.policies import startup_order
from grpo_operator.state import Attempt, Fault, Observed


def all_run(job: GRPOJob, attempt: Attempt) -> bool:
    """Whether every pod of the attempt has started (some may have ended well already)."""
    return sum(pod.phase != "pending" for pod in attempt.pods) >= job.spec.trainer.replicas


def of_starting(job: GRPOJob, observed: Observed, attempt: Attempt) -> Fault:
    """Return what an attempt waits for whose pods do not all run yet."""
    faults = [
        *observed.refusals,
        *attempt.faults,
        *(pod.fault for pod in attempt.pods if pod.fault and pod.phase == "pending"),
        *([observed.claim] if observed.claim else ()),
    ]
    fault = reasons.first(faults)
    if fault:
        return fault
    started = sum(pod.phase != "pending" for pod in attempt.pods)
    wanted = job.spec.trainer.replicas
    return Fault(
        reasons.TRAINER_STARTING, f"attempt {attempt.number}: {started} of {wanted} pods run, the others start"
    )


def of_running(job: GRPOJob, observed: Observed, attempt: Attempt) -> Fault:
    """Return what an attempt does whose pods all run; the numbers are in status.progress, not in the message."""
    if observed.refusals:
        return reasons.first(observed.refusals) or observed.refusals[0]
    waiting = startup_order.wait_for_reference(job, observed)
    if waiting:
        return Fault(
            reasons.REFERENCE_NOT_READY, f"the trainer waits for the reference ({waiting.reason}: {waiting.message})"
        )
    replicas = job.spec.trainer.replicas
    pods = "1 pod" if replicas == 1 else f"{replicas} pods"
    if is_training(job, observed, attempt.number):
        return Fault(reasons.TRAINING, f"attempt {attempt.number} trains on {pods}")
    return Fault(reasons.TRAINER_LOADING, f"attempt {attempt.number}: {pods} run; they load model and data")


def is_training(job: GRPOJob, observed: Observed, attempt: int) -> bool:
    """Whether the attempt is past loading: it said so itself, or had said so when the status was written."""
    progress = observed.progress
    if progress is not None and progress.attempt == attempt:
        return progress.phase != "starting"
    trainer = job.status.trainer
    return job.status.reason == reasons.TRAINING and trainer is not None and trainer.attempt == attempt
