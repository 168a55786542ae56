"""What must go: older attempts, what a suspension ends, and the reference server after the end."""

from datetime import datetime, timedelta

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.state import Limits, Observed


def older_attempts(observed: Observed, than: int) -> tuple[int, ...]:
    """Return the attempts below `than` of which anything is left.

    An ended attempt's Job stays until the next one starts, so that `kubectl logs` can read its pods.
    """
    return tuple(sorted(attempt.number for attempt in observed.attempts if attempt.number < than))


def removes_reference(job: GRPOJob) -> bool:
    """Whether the reference server goes once the job has ended."""
    return job.spec.runs_reference and job.spec.cleanup_policy == "Delete"


def stuck_attempts(job: GRPOJob, observed: Observed, now: datetime, limits: Limits) -> tuple[int, ...]:
    """Return attempts with pods that still run after the job's end although the Job controller had time to end them."""
    end = job.status.completion_time
    patience = timedelta(seconds=job.spec.trainer.termination_grace_period_seconds + limits.gone)
    if end is None or now < end + patience:
        return ()
    return tuple(sorted(attempt.number for attempt in observed.attempts if attempt.live))
