"""What the spec names and the cluster lacks: nothing new is started until it is there."""

from grpo_operator import reasons
from grpo_operator.state import Fault, Observed


def missing(observed: Observed) -> Fault | None:
    """Return the missing object to tell of, with the number of others, or None."""
    fault = reasons.first(observed.missing)
    others = len(observed.missing) - 1
    if fault is None or others == 0:
        return fault
    return Fault(fault.reason, f"{fault.message} (and {others} more)")
