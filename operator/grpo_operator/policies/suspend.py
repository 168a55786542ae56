"""spec.suspend: the attempt ends (its pods save on SIGTERM) and the reference is scaled to 0; all else stays.

Going on is a new attempt from the checkpoint, which counts neither as a restart nor as a disruption.
"""

from datetime import datetime

from grpo_api.v1alpha1 import LastTermination

from grpo_operator import reasons
from grpo_operator.policies.ledger import Ledger
from grpo_operator.state import Observed, Pod


def end_attempt(ledger: Ledger, now: datetime) -> LastTermination | None:
    """Return how the present attempt is recorded to have ended, if it had not by itself."""
    if ledger.attempt is None or ledger.ended:
        return ledger.last
    message = f"attempt {ledger.attempt} was ended because spec.suspend is set"
    return LastTermination(attempt=ledger.attempt, cause="Suspend", reason=reasons.SUSPENDED, message=message, time=now)


def running(observed: Observed) -> tuple[tuple[Pod, ...], int]:
    """Return (trainer pods that still run, reference pods that still run)."""
    return tuple(pod for attempt in observed.attempts for pod in attempt.live), observed.reference.pods
