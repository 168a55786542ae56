"""The status: progress, conditions' times, counts; as a pure function."""

import json
from datetime import timedelta

import pytest
from grpo_api.progress import Progress, Termination
from grpo_api.v1alpha1 import GRPOJob, Status
from grpo_operator import status
from grpo_operator.plan import plan
from grpo_operator.state import Attempt, Fault, Observed, Reference

from tests.unit.operator.world import (
    LOADING,
    NOW,
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


def follow(job: GRPOJob, *seen: tuple[float, Observed]) -> GRPOJob:
    """Return the job after these looks, each at a number of seconds."""
    for seconds, observed in seen:
        job = job.model_copy(update={"status": plan(job, observed, later(seconds)).status})
    return job


def condition(job: GRPOJob, name: str):
    return next((each for each in job.status.conditions if each.type == name), None)


TRAINING = ((0, observe()), (1, observe(running(), progress=progress(1))))


def test_progress_is_written_at_most_every_15_seconds():
    job = follow(make_job(), *TRAINING)
    assert job.status.progress is not None
    written = job.status.progress.last_update_time
    for seconds in range(2, 16):
        job = follow(job, (seconds, observe(running(), progress=progress(seconds % 5))))
        assert job.status.progress is not None
        assert (job.status.progress.step, job.status.progress.last_update_time) == (1, written)
    job = follow(job, (16, observe(running(), progress=progress(3))))
    assert job.status.progress is not None
    assert job.status.progress.step == 3


def test_the_last_step_is_written_at_once():
    job = follow(make_job(), *TRAINING, (2, observe(running(), progress=progress(5))))
    assert job.status.progress is not None
    assert job.status.progress.steps == "5/5"


def test_the_end_keeps_the_last_step_whatever_rank_zero_said_before_it():
    """Rank 0's last answer may be older than its last words."""
    job = follow(make_job(), *TRAINING, (20, observe(complete(), progress=progress(4))))
    job = follow(job, (60, observe(complete(), progress=progress(4))))
    assert job.status.progress is not None
    assert job.status.progress.steps == "5/5"


def test_unchanged_progress_is_not_written_anew():
    job = follow(make_job(), *TRAINING)
    assert follow(job, (100, observe(running(), progress=progress(1)))).status == job.status


def test_numbers_that_are_not_finite_are_left_out():
    told = Progress.model_construct(attempt=0, phase="training", step=1, total_steps=5, reward=float("nan"), kl=1.0)
    for name in ("loss", "tokens_per_second", "last_step_time", "checkpoint_step", "eta_seconds", "model_path"):
        setattr(told, name, float("inf") if name == "eta_seconds" else None)
    job = follow(make_job(), (0, observe()), (1, observe(running(), progress=told)))
    assert job.status.progress is not None
    assert (job.status.progress.reward, job.status.progress.kl, job.status.progress.eta_seconds) == (None, 1.0, None)
    text = json.dumps(job.to_manifest())
    assert "NaN" not in text
    assert "Infinity" not in text


def test_progress_of_an_older_attempt_is_ignored_and_the_old_numbers_stay():
    job = follow(make_job(), *TRAINING)
    down = failed(0, ended_pod(0, 1), ended_pod(1, 1))
    job = follow(job, (20, observe(down)), (31, observe(down)), (50, observe(running(1), progress=progress(4, 0))))
    assert job.status.trainer is not None
    assert job.status.trainer.attempt == 1
    assert job.status.progress is not None
    assert job.status.progress.step == 1
    job = follow(job, (60, observe(running(1), progress=progress(2, 1))))
    assert job.status.progress is not None
    assert job.status.progress.step == 2


def test_the_references_version_is_the_trainers_word_and_goes_with_the_progress():
    def version(job: GRPOJob) -> str | None:
        assert job.status.reference is not None
        return job.status.reference.version

    def seen(step: int, attempt: int, name: str | None) -> Observed:
        return observe(running(attempt), progress=progress(step, attempt, reference_version=name))

    job = make_job(reference__sync={"everySteps": 1})
    job = follow(job, (0, observe()), (1, seen(1, 0, "base")))
    assert version(job) == "base"
    job = follow(job, (5, seen(2, 0, "step-2")))
    assert version(job) == "base", "not more often than the progress"
    job = follow(job, (20, seen(3, 0, "step-3")))
    assert version(job) == "step-3"
    down = failed(0, ended_pod(0, 1), ended_pod(1, 1))
    late = observe(running(1), progress=progress(4, 0, reference_version="step-4"))
    job = follow(job, (30, observe(down)), (41, observe(down)), (60, late))
    assert version(job) == "step-3", "an older attempt is not asked"
    job = follow(job, (70, seen(3, 1, "step-2")), (90, observe(complete(1))))
    assert version(job) == "step-2", "a resumed attempt may fall back, and the end keeps the last"


def test_steps_say_that_the_total_is_not_known_yet():
    assert status.steps(0, None) == "0/?"
    assert status.steps(37, 200) == "37/200"


def test_success_completes_the_steps_from_the_trainers_last_words():
    words = Termination(reason="Succeeded", message="done", rank=0, exit_code=0, step=7, model_path="/m")
    end = Attempt(0, True, "Complete", pods=(ended_pod(0, 0, termination=words), ended_pod(1, 0)))
    job = follow(make_job(), (0, observe()), (1, observe(end)))
    assert job.status.progress is not None
    assert (job.status.progress.steps, job.status.model_path) == ("7/7", "/m")


def test_success_without_last_words_takes_the_steps_of_the_spec():
    end = Attempt(0, True, "Complete")
    job = follow(make_job(optimization__maxSteps=9), (0, observe()), (1, observe(end)))
    assert job.status.progress is not None
    assert job.status.progress.steps == "9/9"
    assert job.status.phase == "Succeeded"


def test_transition_times_move_only_with_the_status():
    job = follow(make_job(), (0, observe(reference=LOADING)))
    first = condition(job, "ReferenceReady")
    fault = Reference(True, 1, 0, 1, faults=(Fault("ImagePullBackOff", "no"),))
    job = follow(job, (10, observe(reference=fault)))
    second = condition(job, "ReferenceReady")
    assert (second.status, second.reason) == ("False", "ImagePullBackOff")
    assert second.last_transition_time == first.last_transition_time == NOW
    job = follow(job, (20, observe()))
    assert condition(job, "ReferenceReady").last_transition_time == NOW + timedelta(seconds=20)


def test_end_conditions_appear_only_at_the_end():
    job = follow(make_job(), *TRAINING)
    assert {each.type for each in job.status.conditions} == {"Accepted", "ReferenceReady", "TrainerReady"}
    assert condition(job, "TrainerReady").status == "True"
    job = follow(job, (30, observe(complete())))
    assert condition(job, "Succeeded").status == "True"
    assert condition(job, "TrainerReady").status == "False"
    assert condition(job, "Failed") is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"optimization__beta": 0}, "ReferenceNotNeeded"),
        ({"reference__url": "http://x"}, "ReferenceExternal"),
    ],
)
def test_no_reference_to_wait_for_is_ready(changes: dict[str, object], reason: str):
    job = follow(make_job(**changes), (0, observe(reference=Reference())))
    assert (condition(job, "ReferenceReady").status, condition(job, "ReferenceReady").reason) == ("True", reason)


def test_observed_generation_follows_even_after_the_end():
    job = follow(make_job(), *TRAINING, (30, observe(complete())))
    edited = job.model_copy(update={"metadata": job.metadata.model_copy(update={"generation": 7})})
    edited = follow(edited, (40, observe(complete())))
    assert edited.status.observed_generation == 7
    assert edited.status.phase == "Succeeded"


def test_times_are_whole_seconds_and_the_start_is_kept():
    made = plan(make_job(), observe(), NOW + timedelta(microseconds=123456)).status
    assert made.start_time == NOW
    job = make_job(status=made)
    assert plan(job, observe(running()), later(50)).status.start_time == NOW


def test_ready_counts_pods_that_run_and_are_ready():
    pods = (running_pod(0), running_pod(1, ready=False))
    job = follow(make_job(), (0, observe()), (1, observe(Attempt(0, True, pods=pods))))
    assert job.status.trainer is not None
    assert (job.status.trainer.ready, job.status.trainer.desired) == (1, 2)


def test_long_messages_are_cut_to_what_the_schema_takes():
    fault = Fault("Unschedulable", "x" * 5000)
    pods = (running_pod(0), running_pod(1, phase="pending", ready=False, fault=fault))
    job = follow(make_job(), (0, observe()), (1, observe(Attempt(0, True, pods=pods))))
    assert len(job.status.message or "") == 2048
    Status.model_validate(job.status.model_dump())
