"""An attempt ends badly: the cause, the back-off, the next attempt."""

import pytest
from grpo_api import env
from grpo_api.progress import Termination
from grpo_operator.plan import plan
from grpo_operator.state import Attempt, Limits

from tests.unit.operator.steps import EVICTED, LIMITS, after, event_reasons, run_to_training, step
from tests.unit.operator.world import LOADING, NOW, ended_pod, failed, observe, running_pod


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
