"""Suspension, and what comes after it."""

from grpo_api.v1alpha1 import GRPOJob
from grpo_operator.state import Attempt, Reference

from tests.unit.operator.steps import EVICTED, after, run_to_training, step
from tests.unit.operator.world import ended_pod, failed, make_job, observe, running, running_pod


def test_suspend_ends_the_attempt_and_scales_the_reference_to_0():
    job = run_to_training(suspend=False)
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True})})
    made = step(job, observe(running()))
    assert made.remove_attempts == (0,)
    assert made.attempt is None
    assert made.reference is not None
    assert made.reference.replicas == 0
    assert (made.status.phase, made.status.reason) == ("Suspended", "Suspending")
    job = after(job, made)
    made = step(job, observe(reference=Reference(True)), 10)
    assert (made.status.phase, made.status.reason) == ("Suspended", "Suspended")
    assert made.look_again is None
    conditions = {condition.type: condition.status for condition in made.status.conditions}
    assert (conditions["Suspended"], conditions["TrainerReady"]) == ("True", "False")
    assert conditions["ReferenceReady"] == "False"


def test_resume_is_a_new_attempt_that_counts_as_nothing():
    job = run_to_training()
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True})})
    job = after(job, step(job, observe(running())))
    ending = Attempt(0, exists=False, pods=(ended_pod(0, 75), ended_pod(1, 65)))
    job = after(job, step(job, observe(ending, reference=Reference(True)), 5))
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": False})})
    made = step(job, observe(reference=Reference(True)), 100)
    assert (made.status.phase, made.attempt) == ("Starting", None)
    assert made.reference is not None
    assert made.reference.replicas == 1
    made = step(after(job, made), observe(), 110)
    assert made.attempt is not None
    assert made.attempt.number == 1
    assert (made.status.restarts, made.status.disruptions) == (0, 0)
    assert {condition.type: condition.status for condition in made.status.conditions}["Suspended"] == "False"


def test_resume_waits_for_the_pods_of_the_suspended_attempt():
    job = run_to_training()
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True})})
    job = after(job, step(job, observe(running())))
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": False})})
    ending = Attempt(0, exists=False, pods=(running_pod(0, terminating=True),))
    made = step(job, observe(ending), 5)
    assert made.attempt is None
    assert (made.status.phase, made.status.reason) == ("Starting", "WaitingForPods")


def test_an_attempt_that_outlived_its_suspension_is_ended_all_the_same():
    job = run_to_training()
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True})})
    job = after(job, step(job, observe(running())))
    # The deletion was refused, and suspend was taken back meanwhile: the attempt was written off.
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": False})})
    made = step(job, observe(running()), 5)
    assert made.remove_attempts == (0,)
    assert made.attempt is None


def suspended(job: GRPOJob, suspend: bool = True) -> GRPOJob:
    return job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": suspend})})


def test_a_suspension_whose_status_was_lost_after_the_deletion_is_no_disruption():
    job = suspended(run_to_training())
    assert step(job, observe(running())).remove_attempts == (0,)
    # The status of that plan was never written; the Job is gone, its pods end.
    ending = Attempt(0, exists=False, pods=(running_pod(0, terminating=True), ended_pod(1, 143, disruption=EVICTED)))
    job = after(job, step(job, observe(ending), 5))
    assert job.status.trainer is not None
    assert job.status.trainer.last_termination is not None
    assert job.status.trainer.last_termination.cause == "Suspend"
    made = step(suspended(job, False), observe(), 100)
    assert made.attempt is not None
    assert (made.attempt.number, made.status.restarts, made.status.disruptions) == (1, 0, 0)


def test_a_crash_before_the_suspension_is_no_disruption_once_the_job_is_deleted():
    job = run_to_training()
    job = after(job, step(job, observe(failed(0, ended_pod(0, 1), running_pod(1)))))
    job = suspended(job)
    ending = Attempt(0, exists=False, pods=(running_pod(1, terminating=True),))
    job = after(job, step(job, observe(ending), 5))
    made = step(suspended(job, False), observe(), 100)
    assert made.attempt is not None
    assert (made.attempt.number, made.status.restarts, made.status.disruptions) == (1, 1, 0)


def test_a_job_born_suspended_makes_nothing():
    made = step(make_job(suspend=True), observe(reference=Reference()))
    assert (made.prepare, made.reference, made.attempt) == (False, None, None)
    assert (made.status.phase, made.status.reason) == ("Suspended", "Suspended")
    assert made.status.start_time is None


def test_an_attempt_that_had_crashed_before_the_suspension_still_counts_as_a_restart():
    job = run_to_training()
    down = failed(0, ended_pod(0, 1), ended_pod(1, 1))
    job = after(job, step(job, observe(down)))
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True})})
    job = after(job, step(job, observe(down)))
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": False})})
    made = step(job, observe(), 100)
    assert made.attempt is not None
    assert (made.attempt.number, made.status.restarts) == (1, 1)
