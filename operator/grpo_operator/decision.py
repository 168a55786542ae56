"""What the rules decided about a job: `plan` makes it, `status` and `events` put it into words."""

from dataclasses import dataclass

from grpo_api.v1alpha1 import Phase

from grpo_operator.policies.ledger import Ledger


@dataclass(frozen=True)
class Decision:
    """The outcome of one run of the rules."""

    phase: Phase
    reason: str
    message: str
    ledger: Ledger
    """The counts, with the attempt that is the present one from now on."""
    start: bool = False
    """The present attempt shall be there; False: leave alone what there is."""
    reference: int | None = None
    """Replicas of the reference server; None: leave alone."""
    prepare: bool = False
    remove_reference: bool = False
    remove_attempts: tuple[int, ...] = ()
    look_again: float | None = None
    abandoned: tuple[str, ...] = ()
    """Pods of older attempts that the next one did not wait for any longer."""
    exhausted: bool = False
    """The job fails because no restart is left."""
    model_path: str | None = None
    """Where the trained model lies, once the job has succeeded."""
