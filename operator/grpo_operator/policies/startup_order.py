"""The reference first: no attempt starts before the reference server answers."""

from grpo_api.exit_codes import is_permanent
from grpo_api.v1alpha1 import GRPOJob

from grpo_operator import reasons
from grpo_operator.state import Fault, Observed


def reference_ready(job: GRPOJob, observed: Observed) -> bool:
    """Whether the reference answers: all replicas of ours; an external one is the trainer's to ask."""
    if not job.spec.runs_reference:
        return True
    return observed.reference.exists and observed.reference.ready >= job.spec.reference.replicas


def wait_for_reference(job: GRPOJob, observed: Observed) -> Fault | None:
    """Return why an attempt may not start yet, or None."""
    if reference_ready(job, observed):
        return None
    fault = reasons.first(observed.reference.faults)
    if fault:
        return fault
    ready, wanted = observed.reference.ready, job.spec.reference.replicas
    return Fault(reasons.REFERENCE_STARTING, f"the reference server loads its model ({ready} of {wanted} ready)")


def reference_failed(job: GRPOJob, observed: Observed) -> Fault | None:
    """Return why the reference server can never become ready, or None.

    Like a trainer's, its exit codes 64 and 65 say that a new start would meet the same end.
    """
    code, told = observed.reference.exit_code, observed.reference.termination
    if not job.spec.runs_reference or reference_ready(job, observed) or code is None or not is_permanent(code):
        return None
    message = told.message if told else f"it ended with exit code {code}; its log says more"
    return Fault(reasons.REFERENCE_FAILED, f"the reference server: {message}")
