"""Objects that are not there."""

from grpo_operator.state import Fault, Reference

from tests.unit.operator.steps import LIMITS, run_to_training, step
from tests.unit.operator.world import make_job, observe, running


def test_missing_objects_hold_back_everything_and_are_looked_for_again():
    lacking = Fault("MissingSecret", "Secret hub does not exist")
    made = step(make_job(), observe(reference=Reference(), missing=(lacking, Fault("MissingClaim", "no claim"))))
    assert not made.prepare
    assert made.reference is None
    assert made.attempt is None
    assert (made.status.phase, made.status.reason) == ("Pending", "MissingSecret")
    assert made.status.message == "Secret hub does not exist (and 1 more)"
    assert made.look_again == LIMITS.recheck
    assert {c.type: c.status for c in made.status.conditions}["Accepted"] == "False"


def test_objects_missing_later_do_not_disturb_a_running_attempt():
    job = run_to_training()
    made = step(job, observe(running(), missing=(Fault("MissingSecret", "Secret hub does not exist"),)))
    assert made.status.phase == "Running"
    assert made.attempt is not None
    assert made.attempt.number == 0
