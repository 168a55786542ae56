"""One reconcile after the other, without a cluster."""

from grpo_api.v1alpha1 import GRPOJob
from grpo_operator import reasons
from grpo_operator.plan import plan
from grpo_operator.state import Fault, Limits, Observed, Plan

from tests.unit.operator.world import later, make_job, observe, running

LIMITS = Limits()
EVICTED = Fault(reasons.EVICTION_BY_EVICTION_API, "Eviction API: evicting")


def step(job: GRPOJob, observed: Observed, seconds: float = 0) -> Plan:
    return plan(job, observed, later(seconds), LIMITS)


def after(job: GRPOJob, made: Plan) -> GRPOJob:
    """Return the job as it is once the plan's status is written."""
    return job.model_copy(update={"status": made.status})


def run_to_training(**changes: object) -> GRPOJob:
    """Return a job whose attempt 0 trains."""
    job = make_job(**changes)
    for observed in (observe(), observe(running())):
        job = after(job, step(job, observed))
    assert job.status.phase == "Running"
    return job


def event_reasons(made: Plan) -> list[str]:
    return [event.reason for event in made.events]
