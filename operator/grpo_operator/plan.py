"""`plan`: from what there is to what shall be. Pure and level-triggered.

The rules are in `policies/`, their order in `decide`; `status` and `events` put the outcome into words.
"""

from datetime import datetime

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator import environment, status
from grpo_operator.decide import decide
from grpo_operator.events import events
from grpo_operator.state import AttemptTarget, Limits, Observed, Plan, ReferenceTarget

DEFAULT_LIMITS = Limits()


def plan(job: GRPOJob, observed: Observed, now: datetime, limits: Limits = DEFAULT_LIMITS) -> Plan:
    """Return what shall be for `job`, whose status is the one last written.

    The same answer comes whatever woke us up. A crash between any two writes of an adapter that carries out the
    answer is repaired by the next run: nothing is counted twice, no terminal state is lost.
    """
    if job.metadata.deletion_timestamp or observed.terminating:
        # Garbage collection does the rest; nothing may be made that it would have to find.
        return Plan(status=job.status)
    decision = decide(job, observed, now, limits)
    new = status.build(job, observed, decision, now, limits)
    target, places = decision.ledger.attempt, observed.places
    return Plan(
        status=new,
        prepare=decision.prepare,
        remove_reference=decision.remove_reference,
        reference=None
        if decision.reference is None
        else ReferenceTarget(decision.reference, environment.reference_arguments(job, places)),
        remove_attempts=decision.remove_attempts,
        attempt=AttemptTarget(target, job.spec.trainer.replicas, environment.trainer_environment(job, target, places))
        if decision.start and target is not None
        else None,
        events=events(job, job.status, new, decision),
        look_again=decision.look_again,
    )
