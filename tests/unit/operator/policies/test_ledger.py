"""Counts and numbers through deleted children and writes that were lost."""

from datetime import timedelta

from grpo_api.v1alpha1 import Status
from grpo_operator.state import Attempt, Reference

from tests.unit.operator.steps import LIMITS, after, run_to_training, step
from tests.unit.operator.world import NOW, READY, ended_pod, failed, observe, progress, running, running_pod


def test_a_job_deleted_without_a_trace_is_made_again_under_its_number():
    made = step(run_to_training(), observe())
    assert made.attempt is not None
    assert made.attempt.number == 0
    assert made.status.restarts == 0


def test_a_job_deleted_while_its_pods_run_counts_as_a_disruption():
    job = run_to_training()
    orphaned = Attempt(0, exists=False, pods=(running_pod(0, terminating=True), ended_pod(1, 75)))
    made = step(job, observe(orphaned))
    assert made.attempt is None
    job = after(job, made)
    made = step(job, observe(), LIMITS.backoff)
    assert made.attempt is not None
    assert made.attempt.number == 1
    assert (made.status.restarts, made.status.disruptions) == (0, 1)


def test_the_reference_is_made_again_while_training():
    made = step(run_to_training(), observe(running(), reference=Reference()))
    assert made.reference is not None
    assert made.reference.replicas == 1


def test_a_crash_after_the_next_job_was_made_counts_once():
    job = run_to_training()
    down = failed(0, ended_pod(0, 1), ended_pod(1, 1))
    job = after(job, step(job, observe(down)))
    made = step(job, observe(down), LIMITS.backoff)
    assert made.attempt is not None
    # The operator died: Job 1 exists, the status was not written.
    repaired = step(job, observe(down, running(1)), 60)
    assert (repaired.status.restarts, repaired.status.trainer and repaired.status.trainer.attempt) == (1, 1)
    assert repaired.remove_attempts == (0,)
    again = step(after(job, repaired), observe(running(1)), 61)
    assert again.status.restarts == 1


def test_a_crash_after_the_status_was_written_makes_the_job_without_counting():
    job = run_to_training()
    down = failed(0, ended_pod(0, 1), ended_pod(1, 1))
    job = after(job, step(job, observe(down)))
    job = after(job, step(job, observe(down), LIMITS.backoff))
    made = step(job, observe(), 60)
    assert made.attempt is not None
    assert (made.attempt.number, made.status.restarts) == (1, 1)


def test_a_lost_status_counts_earlier_attempts_as_restarts():
    job = run_to_training()
    job = job.model_copy(update={"status": Status()})
    made = step(job, observe(running(2)))
    assert (made.status.restarts, made.attempt and made.attempt.number) == (2, 2)


def test_an_answer_that_is_carried_out_changes_nothing_more():
    job = run_to_training()
    seen = observe(running(), progress=progress(2))
    job = after(job, step(job, seen, 1))
    made = step(job, seen, 30)
    assert made.status == job.status
    assert not made.events
    assert made.status.progress is not None
    assert made.status.progress.last_update_time == NOW + timedelta(seconds=1)
    assert READY.ready == 1
