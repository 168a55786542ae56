"""`plan`: from what there is to what shall be. Pure and level-triggered; the rules are in `policies/`."""

from datetime import datetime

from grpo_api.v1alpha1 import GRPOJob

from .state import Limits, Observed, Plan


def plan(job: GRPOJob, observed: Observed, now: datetime, limits: Limits = Limits()) -> Plan:  # noqa: B008
    """Return what shall be for `job`, whose status is the one last written.

    The same answer comes whatever woke us up. A crash between any two writes of an adapter that carries out the
    answer is repaired by the next run: nothing is counted twice, no terminal state is lost.
    """
    return Plan(status=job.status)
