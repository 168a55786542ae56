"""The end: it is told, it is sticky, and nothing is left running."""

import pytest
from grpo_api.progress import Termination
from grpo_operator.state import Observed, Plan, Reference

from tests.unit.operator.steps import LIMITS, after, event_reasons, run_to_training, step
from tests.unit.operator.world import NOW, complete, ended_pod, failed, observe, progress, running, running_pod


def test_success_is_told_with_the_model_and_the_steps_and_the_reference_goes():
    made = step(run_to_training(), observe(complete(), progress=progress(3)))
    assert (made.status.phase, made.status.reason) == ("Succeeded", "Succeeded")
    assert made.status.model_path == "/output/demo/uid-1/final"
    assert made.status.progress is not None
    assert made.status.progress.steps == "5/5"
    assert made.status.completion_time == NOW
    assert made.remove_reference
    assert {c.type: c.status for c in made.status.conditions}["Succeeded"] == "True"


@pytest.mark.parametrize(
    "left",
    [observe(), observe(running()), observe(failed(0, ended_pod(0, 1))), observe(running(7)), observe(complete())],
    ids=["all gone", "running", "failed", "a later attempt", "complete"],
)
@pytest.mark.parametrize("suspend", [True, False])
def test_the_end_is_sticky(left: Observed, suspend: bool):
    job = run_to_training()
    job = after(job, step(job, observe(complete())))
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": suspend})})
    made = step(job, left, 5)
    assert (made.prepare, made.reference, made.attempt) == (False, None, None)
    assert made.status.phase == "Succeeded"
    assert made.status.model_path == job.status.model_path
    assert made.status.completion_time == job.status.completion_time
    assert not any(event.reason == "Succeeded" for event in made.events)


def test_the_references_end_is_told_once():
    job = run_to_training()
    job = after(job, step(job, observe(complete())))
    made = step(job, observe(complete(), reference=Reference()), 1)
    assert event_reasons(made) == ["ReferenceRemoved"]
    assert not step(after(job, made), observe(complete(), reference=Reference()), 2).events


def test_pods_that_outlive_the_job_are_ended():
    job = run_to_training()
    words = Termination(reason="ConfigurationError", message="m", exit_code=64)
    told = failed(0, running_pod(0, terminating=True), ended_pod(1, 64, termination=words))
    job = after(job, step(job, observe(told)))
    assert job.status.phase == "Failed"
    made = step(job, observe(told), 10)
    assert made.remove_attempts == ()
    assert made.look_again == LIMITS.recheck
    patience = job.spec.trainer.termination_grace_period_seconds + LIMITS.gone
    assert step(job, observe(told), patience).remove_attempts == (0,)


def test_nothing_is_made_for_a_job_that_is_being_deleted():
    job = run_to_training()
    deleted = job.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
    made = step(job.model_copy(update={"metadata": deleted}), observe(reference=Reference()))
    assert made == Plan(status=job.status)
    assert step(job, observe(reference=Reference(), terminating=True)) == Plan(status=job.status)
