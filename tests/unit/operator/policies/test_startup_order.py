"""The order of the start: the reference first, and what holds it back."""

import pytest
from grpo_api import env
from grpo_api.progress import Termination
from grpo_operator.state import Attempt, Fault, Reference

from tests.unit.operator.steps import LIMITS, after, event_reasons, run_to_training, step
from tests.unit.operator.world import LOADING, NOW, ended_pod, failed, make_job, observe, progress, running, running_pod


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
