"""The plan as a pure function: one scenario per row of the table of what happens."""

from datetime import timedelta

import pytest
from grpo_api import env
from grpo_api.progress import Termination
from grpo_api.v1alpha1 import GRPOJob, Status
from grpo_operator import reasons
from grpo_operator.plan import plan
from grpo_operator.state import Attempt, Fault, Limits, Observed, Plan, Reference

from tests.unit.operator.world import (
    LOADING,
    NOW,
    READY,
    complete,
    ended_pod,
    failed,
    later,
    make_job,
    observe,
    progress,
    running,
    running_pod,
)

LIMITS = Limits()
EVICTED = Fault(reasons.EVICTION_BY_EVICTION_API, "Eviction API: evicting")


def step(job: GRPOJob, observed: Observed, seconds: float = 0) -> Plan:
    return plan(job, observed, later(seconds), LIMITS)


def after(job: GRPOJob, made: Plan) -> GRPOJob:
    """Return the job as it is once the plan's status is written."""
    return job.model_copy(update={"status": made.status})


def run_to_training(**changes: object) -> GRPOJob:
    """Return a job whose attempt 0 trains."""
    job = make_job(**changes)
    for observed in (observe(), observe(running())):
        job = after(job, step(job, observed))
    assert job.status.phase == "Running"
    return job


def event_reasons(made: Plan) -> list[str]:
    return [event.reason for event in made.events]


# --- the order of the start


def test_a_new_job_makes_the_reference_and_no_trainer():
    made = step(make_job(), observe(reference=Reference()))
    assert made.prepare
    assert made.reference is not None
    assert made.reference.replicas == 1
    assert made.attempt is None
    assert (made.status.phase, made.status.reason) == ("Starting", "ReferenceStarting")
    assert made.status.trainer is None
    assert made.status.start_time == NOW
    assert event_reasons(made) == ["Accepted", "ReferenceStarting"]


def test_no_trainer_while_the_reference_loads_and_its_pods_fault_is_told():
    fault = Fault("ImagePullBackOff", 'Back-off pulling image "nope"')
    made = step(make_job(), observe(reference=Reference(exists=True, desired=1, pods=1, faults=(fault,))))
    assert made.attempt is None
    assert (made.status.phase, made.status.reason) == ("Starting", "ImagePullBackOff")
    assert made.status.message == fault.message
    assert ("Warning", "ImagePullBackOff") in [(event.type, event.reason) for event in made.events]


def test_all_replicas_of_the_reference_must_be_ready():
    job = make_job(reference__replicas=2)
    assert step(job, observe(reference=Reference(True, desired=2, ready=1, pods=2))).attempt is None
    assert step(job, observe(reference=Reference(True, desired=2, ready=2, pods=2))).attempt is not None


def test_the_trainer_starts_once_the_reference_is_ready():
    job = after(make_job(), step(make_job(), observe(reference=LOADING)))
    made = step(job, observe())
    assert made.attempt is not None
    assert (made.attempt.number, made.attempt.replicas) == (0, 2)
    environment = made.attempt.environment
    assert environment[env.REF_MODEL_URL] == "http://demo-reference:8000"
    assert environment[env.PET_MASTER_ADDR] == "demo-trainer-0-0.demo-trainer"
    assert environment[env.DS3_GATHER_FOR_GENERATION] == "auto"
    assert (environment[env.PET_NNODES], environment[env.PET_NPROC_PER_NODE]) == ("2", "1")
    assert made.status.trainer is not None
    assert (made.status.trainer.attempt, made.status.trainer.ready, made.status.trainer.desired) == (0, 0, 2)
    assert event_reasons(made) == ["ReferenceReady", "AttemptStarted"]


def test_beta_0_runs_no_reference():
    made = step(make_job(optimization__beta=0), observe(reference=Reference()))
    assert made.reference is None
    assert made.attempt is not None
    assert made.attempt.environment[env.REF_MODEL_URL] == ""
    assert made.status.reference is None


def test_an_external_reference_is_only_addressed():
    made = step(make_job(reference__url="http://elsewhere:9"), observe(reference=Reference()))
    assert made.reference is None
    assert made.attempt is not None
    assert made.attempt.environment[env.REF_MODEL_URL] == "http://elsewhere:9"


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


def test_a_refused_trainer_job_is_told_and_tried_again_as_the_same_attempt():
    job = after(make_job(), step(make_job(), observe()))
    refused = Fault("QuotaExceeded", "jobs demo-trainer-0: exceeded quota")
    made = step(job, observe(refusals=(refused,)))
    assert made.attempt is not None
    assert made.attempt.number == 0
    assert (made.status.phase, made.status.reason) == ("Starting", "QuotaExceeded")
    assert made.look_again == LIMITS.recheck
    assert made.status.restarts == 0


@pytest.mark.parametrize("reason", ["Unschedulable", "FailedAttachVolume", "ImagePullBackOff"])
def test_faults_of_trainer_pods_are_told(reason: str):
    job = after(make_job(), step(make_job(), observe()))
    pods = (running_pod(0), running_pod(1, phase="pending", ready=False, fault=Fault(reason, "why")))
    made = step(job, observe(Attempt(0, exists=True, pods=pods)))
    assert (made.status.phase, made.status.reason, made.status.message) == ("Starting", reason, "why")
    assert made.status.trainer is not None
    assert (made.status.trainer.ready, made.status.trainer.desired) == (1, 2)


def test_a_running_attempt_loads_and_then_trains():
    job = after(make_job(), step(make_job(), observe()))
    made = step(job, observe(running()))
    assert (made.status.phase, made.status.reason) == ("Running", "TrainerLoading")
    made = step(after(job, made), observe(running(), progress=progress(1)))
    assert (made.status.phase, made.status.reason) == ("Running", "Training")
    assert made.status.progress is not None
    assert made.status.progress.steps == "1/5"
    assert made.look_again == LIMITS.progress
    # Without an answer for once, it still trains.
    assert step(after(job, made), observe(running())).status.reason == "Training"


def test_the_reference_lost_during_training_is_told_and_the_attempt_goes_on():
    made = step(run_to_training(), observe(running(), reference=LOADING))
    assert (made.status.phase, made.status.reason) == ("Running", "ReferenceNotReady")
    assert made.attempt is not None
    assert made.attempt.number == 0
    assert made.reference is not None


def test_a_reference_that_can_never_be_ready_fails_the_job():
    told = Termination(reason="ConfigurationError", message="model org/nope does not exist", exit_code=64)
    down = Reference(True, desired=1, pods=1, exit_code=64, termination=told)
    made = step(make_job(), observe(reference=down))
    assert (made.status.phase, made.status.reason) == ("Failed", "ReferenceFailed")
    assert "org/nope" in (made.status.message or "")
    crashed = Reference(True, desired=1, pods=1, exit_code=1)
    assert step(make_job(), observe(reference=crashed)).status.phase == "Starting"


def test_a_reference_that_fails_for_good_ends_the_job_only_once_no_attempt_runs():
    down = Reference(True, desired=1, pods=1, exit_code=64)
    job = run_to_training()
    made = step(job, observe(running(), reference=down))
    assert (made.status.phase, made.status.reason) == ("Running", "ReferenceNotReady")
    lost = failed(0, ended_pod(0, 75), ended_pod(1, 75))
    made = step(after(job, made), observe(lost, reference=down), 60)
    assert (made.status.phase, made.status.reason) == ("Failed", "ReferenceFailed")


# --- an attempt ends badly


def test_a_crash_is_recorded_waits_and_starts_the_next_attempt():
    job = run_to_training()
    down = failed(0, ended_pod(0, 75), ended_pod(1, 139))
    made = step(job, observe(down))
    assert (made.status.phase, made.status.reason) == ("Restarting", "Crashed")
    assert made.attempt is None
    assert made.status.restarts == 0
    assert made.status.trainer is not None
    last = made.status.trainer.last_termination
    assert last is not None
    assert (last.attempt, last.cause) == (0, "Crash")
    assert "SIGSEGV" in last.message
    assert made.look_again == LIMITS.backoff
    job = after(job, made)

    made = step(job, observe(down), LIMITS.backoff - 1)
    assert made.attempt is None
    assert made.look_again == pytest.approx(1)
    assert not made.events

    made = step(job, observe(down), LIMITS.backoff)
    assert made.attempt is not None
    assert made.attempt.number == 1
    assert made.attempt.environment[env.GRPO_ATTEMPT] == "1"
    assert made.attempt.environment[env.PET_MASTER_ADDR] == "demo-trainer-1-0.demo-trainer"
    assert made.remove_attempts == (0,)
    assert (made.status.restarts, made.status.disruptions) == (1, 0)
    assert event_reasons(made) == ["AttemptStarted"]


def test_nothing_starts_before_the_end_is_written_even_without_a_back_off():
    job = run_to_training()
    down = failed(0, ended_pod(0, 1), ended_pod(1, 1))
    limits = Limits(backoff=0)
    first = plan(job, observe(down), NOW, limits)
    assert first.attempt is None
    assert first.look_again == 0
    assert plan(after(job, first), observe(down), NOW, limits).attempt is not None


def test_the_next_attempt_waits_for_the_old_pods_and_then_no_longer():
    job = run_to_training()
    down = failed(0, ended_pod(0, 1), running_pod(1, terminating=True))
    job = after(job, step(job, observe(down)))
    patience = job.spec.trainer.termination_grace_period_seconds + LIMITS.gone
    made = step(job, observe(down), patience - 1)
    assert made.attempt is None
    assert "waits for demo-trainer-0-1 to end" in (made.status.message or "")
    made = step(job, observe(down), patience)
    assert made.attempt is not None
    assert made.attempt.number == 1
    assert made.remove_attempts == (0,)
    assert event_reasons(made) == ["PodsNotGone", "AttemptStarted"]


def test_a_permanent_exit_code_fails_the_job_at_once_with_the_trainers_own_reason():
    told = Termination(reason="RewardError", message="reward function m:f: ValueError: boom", rank=1, exit_code=65)
    down = failed(0, running_pod(0, terminating=True), ended_pod(1, 65, termination=told))
    made = step(run_to_training(), observe(down))
    assert (made.status.phase, made.status.reason) == ("Failed", "RewardError")
    assert made.status.message == "rank 1: reward function m:f: ValueError: boom"
    assert made.remove_reference
    assert made.remove_attempts == ()
    assert event_reasons(made) == ["RewardError"]


def test_a_permanent_exit_code_without_words_waits_for_those_of_the_other_pods():
    job = run_to_training()
    wordless = Termination(reason="Crashed", message="rank 1 ended with exit code 65", rank=1, exit_code=65)
    first = failed(0, running_pod(0, terminating=True), ended_pod(1, 65, termination=wordless))
    made = step(job, observe(first))
    assert (made.status.phase, made.status.reason, made.attempt) == ("Running", "PermanentError", None)
    assert made.look_again == LIMITS.words
    assert not made.events
    told = Termination(reason="RewardError", message="ValueError: boom", rank=0, exit_code=65)
    both = failed(0, ended_pod(0, 65, termination=told), ended_pod(1, 65, termination=wordless))
    end = step(after(job, made), observe(both), 1)
    assert (end.status.phase, end.status.reason) == ("Failed", "RewardError")
    # Nobody says more, and the wait is bounded.
    for seen, seconds in ((first, LIMITS.words), (failed(0, ended_pod(1, 65, termination=wordless)), 1)):
        end = step(after(job, made), observe(seen), seconds)
        assert (end.status.phase, end.status.reason) == ("Failed", "PermanentError")
        assert event_reasons(end) == ["PermanentError"]


def test_max_restarts_fails_the_job_with_the_last_cause_once_all_pods_have_ended():
    job = run_to_training(failurePolicy__maxRestarts=0)
    going = failed(0, ended_pod(0, 137, oom_killed=True), running_pod(1, terminating=True))
    made = step(job, observe(going))
    assert made.status.phase == "Restarting"
    made = step(after(job, made), observe(failed(0, ended_pod(0, 137, oom_killed=True), ended_pod(1, 75))), 5)
    assert (made.status.phase, made.status.reason) == ("Failed", "OOMKilled")
    assert "maxRestarts 0" in (made.status.message or "")
    assert event_reasons(made) == ["OOMKilled", "MaxRestartsReached"]


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_disruption_is_no_restart(restarts: int):
    job = run_to_training()
    job = job.model_copy(update={"status": job.status.model_copy(update={"restarts": restarts})})
    down = failed(0, ended_pod(0, 75), ended_pod(1, 143, disruption=EVICTED))
    job = after(job, step(job, observe(down)))
    assert job.status.phase == "Restarting"
    made = step(job, observe(down), LIMITS.backoff)
    assert made.attempt is not None
    assert made.attempt.number == 1
    assert (made.status.restarts, made.status.disruptions) == (restarts, 1)


def test_a_cause_seen_before_its_pod_vanished_still_counts():
    job = run_to_training()
    first = failed(0, ended_pod(0, 143, disruption=EVICTED), running_pod(1))
    job = after(job, step(job, observe(first)))
    second = failed(0, ended_pod(1, 1))  # pod 0 is gone from the API
    job = after(job, step(job, observe(second), 2))
    assert job.status.trainer is not None
    last = job.status.trainer.last_termination
    assert last is not None
    assert (last.cause, last.time) == ("Disruption", NOW)


def test_a_graver_cause_that_comes_later_replaces_the_first():
    job = run_to_training()
    job = after(job, step(job, observe(failed(0, ended_pod(0, 75), running_pod(1, terminating=True)))))
    assert job.status.reason == "PeerLost"
    job = after(job, step(job, observe(failed(0, ended_pod(0, 75), ended_pod(1, 137, oom_killed=True))), 3))
    assert job.status.reason == "OOMKilled"


def test_back_off_doubles_with_each_restart_and_is_bounded():
    waits = []
    for restarts in (0, 1, 2, 9):
        job = run_to_training(failurePolicy__maxRestarts=10)
        job = job.model_copy(update={"status": job.status.model_copy(update={"restarts": restarts})})
        waits.append(step(job, observe(failed(0, ended_pod(0, 1), ended_pod(1, 1)))).look_again)
    assert waits == [10, 20, 40, LIMITS.backoff_max]


def test_the_next_attempt_too_waits_for_the_reference():
    job = run_to_training()
    down = failed(0, ended_pod(0, 75), ended_pod(1, 75))
    job = after(job, step(job, observe(down, reference=LOADING)))
    made = step(job, observe(down, reference=LOADING), LIMITS.backoff)
    assert made.attempt is None
    assert (made.status.phase, made.status.reason) == ("Restarting", "ReferenceStarting")


def test_exit_code_0_of_one_pod_is_no_success():
    made = step(run_to_training(), observe(Attempt(0, exists=True, pods=(ended_pod(0, 0), running_pod(1)))))
    assert made.status.phase == "Running"
    made = step(run_to_training(), observe(failed(0, ended_pod(0, 0), ended_pod(1, 1))))
    assert made.status.phase == "Restarting"


# --- children deleted by hand


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


# --- suspension


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


# --- the end


def test_success_is_told_with_the_model_and_the_steps_and_the_reference_goes():
    made = step(run_to_training(), observe(complete(), progress=progress(3)))
    assert (made.status.phase, made.status.reason) == ("Succeeded", "Succeeded")
    assert made.status.model_path == "/output/demo/uid-1/final"
    assert made.status.progress is not None
    assert made.status.progress.steps == "5/5"
    assert made.status.completion_time == NOW
    assert made.remove_reference
    assert {c.type: c.status for c in made.status.conditions}["Succeeded"] == "True"


def test_cleanup_policy_retain_keeps_the_reference():
    made = step(run_to_training(cleanupPolicy="Retain"), observe(complete()))
    assert not made.remove_reference


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


# --- repair


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
