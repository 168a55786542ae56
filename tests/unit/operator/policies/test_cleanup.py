"""What becomes of the reference after the end."""

from tests.unit.operator.steps import run_to_training, step
from tests.unit.operator.world import complete, observe


def test_cleanup_policy_retain_keeps_the_reference():
    made = step(run_to_training(cleanupPolicy="Retain"), observe(complete()))
    assert not made.remove_reference
