"""Attempts that end badly."""

from grpo_api.exit_codes import ExitCode
from grpo_api.progress import Termination
from grpo_operator.kubernetes import kinds

from tests.integration.operator.api import names, wait
from tests.integration.operator.kubelet import now
from tests.integration.operator.stage import Stage


def test_after_a_crash_a_second_attempt_reaches_the_end(stage: Stage) -> None:
    stage.create()
    first = stage.start_training()
    stage.kubelet.end(first[1], 137)
    stage.kubelet.end(first[0], ExitCode.RETRY, Termination(reason="PeerLost", message="rank 1 is gone", rank=0))

    stage.wait_job(1)
    second = stage.kubelet.run_attempt(1, 2)
    assert {env["name"]: env.get("value") for env in second[0]["spec"]["containers"][0]["env"]}["GRPO_ATTEMPT"] == "1"
    stage.make_steps(5, attempt=1)
    status = stage.wait_phase("Running")
    assert status["restarts"] == 1
    assert status["trainer"]["attempt"] == 1
    assert status["trainer"]["lastTermination"]["cause"] == "Crash"
    stage.succeed(second)
    status = stage.wait_phase("Succeeded")
    assert (status["restarts"], status["disruptions"]) == (1, 0)
    assert stage.child("trainer-2") not in names(stage.api.list(kinds.JOB, stage.namespace))


def test_pods_of_an_ended_attempt_end_before_the_next_one_starts(stage: Stage) -> None:
    """The Job controller ends the gang once a pod has failed; the peer here takes its time."""
    stage.create()
    stage.api.request("POST", "/api/v1/nodes", json={"metadata": {"name": f"node-{stage.namespace}"}})
    stage.kubelet.run_reference()
    pods = stage.kubelet.await_pods("trainer", 2, 0)
    for pod in pods:
        stage.kubelet.bind(pod, f"node-{stage.namespace}")
        stage.kubelet.run(pod)
    stage.make_steps(1)
    stage.wait_phase("Running")
    stage.kubelet.end(pods[0], 1)

    wait(
        lambda: any(pod["metadata"].get("deletionTimestamp") for pod in stage.kubelet.pods("trainer", 0)),
        "the Job controller's end of the other pod",
    )
    stage.wait_phase("Restarting")
    assert stage.api.get(kinds.JOB, stage.namespace, stage.child("trainer-1")) is None
    stage.kubelet.end(pods[1], 143)
    stage.kubelet.remove(pods[1])
    stage.wait_job(1)
    wait(lambda: stage.status()["trainer"]["attempt"] == 1, "attempt 1 in the status")


def test_a_permanent_exit_code_fails_the_job_with_the_trainers_reason(stage: Stage) -> None:
    stage.create()
    pods = stage.start_training()
    said = Termination(reason="RewardError", message="rewards.py:3: division by zero", rank=1, exit_code=65)
    stage.kubelet.end(pods[1], ExitCode.DATA, said)
    status = stage.wait_phase("Failed", "RewardError")
    assert "division by zero" in status["message"]
    assert status["restarts"] == 0
    assert stage.api.get(kinds.JOB, stage.namespace, stage.child("trainer-1")) is None
    wait(lambda: "Deployment" not in stage.children(), "the reference's removal")


def test_a_disruption_is_not_counted_as_a_restart(stage: Stage) -> None:
    stage.create()
    pods = stage.start_training()
    stage.kubelet.disrupt(pods[0], "PreemptionByScheduler", "preempted by a pod of higher priority")
    stage.kubelet.end(pods[0], 143)
    stage.wait_job(1)
    stage.kubelet.run_attempt(1, 2)
    stage.make_steps(2, attempt=1)
    status = stage.wait_phase("Running")
    assert (status["restarts"], status["disruptions"]) == (0, 1)


def test_the_job_fails_once_its_restarts_are_used_up(stage: Stage) -> None:
    stage.create(failurePolicy={"maxRestarts": 1})
    for attempt in range(2):
        if attempt == 0:
            stage.kubelet.run_reference()
        stage.wait_job(attempt)
        stage.kubelet.end(stage.kubelet.run_attempt(attempt, 2)[0], 1)
    status = stage.wait_phase("Failed")
    assert status["restarts"] == 1
    assert now() >= status["completionTime"]
    assert stage.api.get(kinds.JOB, stage.namespace, stage.child("trainer-2")) is None
