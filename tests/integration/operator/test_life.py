"""The whole life of a job, from creation to Succeeded."""

import itertools
import time

from tests.integration.operator.api import wait
from tests.integration.operator.stage import Stage


def test_a_job_runs_to_its_end(stage: Stage) -> None:
    stage.create()

    # The reference first; no trainer before it is ready.
    stage.kubelet.await_pods("reference", 1)
    status = stage.wait_phase("Starting")
    assert stage.children() == {
        "ConfigMap": {stage.child("config")},
        "Deployment": {stage.child("reference")},
        "NetworkPolicy": {stage.child("reference"), stage.child("trainer")},
        "PersistentVolumeClaim": {stage.child("output")},
        "Pod": {pod["metadata"]["name"] for pod in stage.kubelet.pods("reference")},
        "Secret": {stage.child("token")},
        "Service": {stage.child("reference"), stage.child("trainer")},
    }

    stage.kubelet.run_reference()
    ready = time.monotonic()
    job = stage.wait_job(0)
    print(f"the trainer's Job was seen {time.monotonic() - ready:.2f} s after the reference was ready (target: 2 s)")
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    pods = stage.kubelet.run_attempt(0, 2)

    stage.make_steps(3)
    status = stage.wait_phase("Running", "Training")
    wait(lambda: stage.status().get("progress", {}).get("steps") == "3/5", "3/5 in the status")

    stage.make_steps(5)
    stage.succeed(pods)
    status = stage.wait_phase("Succeeded")
    assert status["restarts"] == 0
    assert status["progress"]["steps"] == "5/5"
    assert status["modelPath"].endswith("/final")
    assert status["observedGeneration"] == 1
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions["Succeeded"] == "True"
    wait(lambda: "Deployment" not in stage.children(), "the reference's removal")
    assert stage.child("trainer-0") in stage.children()["Job"], "the logs of the last attempt stay readable"


def test_the_log_of_a_run_reads_as_a_story(own_stage: Stage) -> None:
    stage = own_stage
    stage.create()
    pods = stage.start_training()
    stage.make_steps(5)
    stage.succeed(pods)
    stage.wait_phase("Succeeded")
    # An event is posted after its line is written, and this one is the last.
    wait(lambda: "ReferenceRemoved" in told_of(stage), "the event of the reference's removal")

    lines = [line.split(" ", 3)[3] for line in stage.operator.lines()]
    print("\n".join(lines))
    assert len(lines) <= 40
    assert all(one != two for one, two in itertools.pairwise(lines))
    told = [line.split()[1].rstrip(":") for line in lines if line.startswith(stage.namespace)]
    course = [
        word for word in told if word in ("Accepted", "ReferenceReady", "AttemptStarted", "Training", "Succeeded")
    ]
    assert course == ["Accepted", "ReferenceReady", "AttemptStarted", "Training", "Succeeded"]
    assert sorted(told_of(stage)) == sorted(told)
    print(f"resident memory of the operator: {stage.operator.resident_megabytes:.0f} MB")


def told_of(stage: Stage) -> list[str]:
    """The reasons of the events about the namespace's jobs."""
    events = stage.api.request("GET", f"/api/v1/namespaces/{stage.namespace}/events")["items"]
    return [event["reason"] for event in events if event["involvedObject"]["kind"] == "GRPOJob"]
