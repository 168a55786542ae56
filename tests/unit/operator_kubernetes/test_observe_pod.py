from typing import Any

import pytest
from grpo_api.progress import Termination
from grpo_operator import reasons
from grpo_operator.kubernetes.observe import EventsByObject
from grpo_operator.kubernetes.observe_pod import faults, last_end, trainer_pod

NO_EVENTS = EventsByObject([])


def pod(status: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "demo-trainer-0-1-abcde",
            "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
            **meta,
        },
        "spec": {"containers": [{"name": "trainer"}]},
        "status": status,
    }


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "trainer", "ready": "running" in state, "state": state}]}


def ended(code: int, at: str = "2026-01-01T00:00:00Z", **fields: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": at, **fields}}


def test_a_pod_that_is_not_scheduled_yet():
    seen = trainer_pod(pod({}), NO_EVENTS)
    assert (seen.index, seen.phase, seen.ready, seen.fault) == (1, "pending", False, None)
    assert seen.live


def test_a_running_pod():
    seen = trainer_pod(pod({"phase": "Running", **container(running={})}), NO_EVENTS)
    assert (seen.phase, seen.ready, seen.exit_code, seen.terminating) == ("running", True, None, False)


def test_a_terminating_pod_lives_until_it_has_ended():
    running = {"phase": "Running", **container(running={})}
    seen = trainer_pod(pod(running, deletionTimestamp="2026-01-01T00:00:00Z"), NO_EVENTS)
    assert seen.terminating
    assert seen.live


def test_a_pod_whose_node_does_not_answer_may_still_run():
    assert trainer_pod(pod({"phase": "Unknown"}), NO_EVENTS).live


def test_an_ended_pod_tells_code_reason_and_time():
    said = Termination(reason="RewardError", message="boom", rank=1, exit_code=65)
    status = {"phase": "Failed", **container(**ended(65, message=said.to_log()))}
    seen = trainer_pod(pod(status), NO_EVENTS)
    assert not seen.live
    assert seen.exit_code == 65
    assert seen.termination == said
    assert seen.ended_at is not None
    assert seen.ended_at.year == 2026


@pytest.mark.parametrize("message", ["", "\n", '{"reason": "Cut', "[1]"])
def test_a_termination_log_that_is_no_reason_is_none(message: str):
    status = {"phase": "Failed", **container(**ended(1, message=message))}
    assert trainer_pod(pod(status), NO_EVENTS).termination is None


def test_the_last_line_of_the_output_counts_where_no_reason_was_written():
    status = {"phase": "Failed", **container(**ended(64, message="loading\nno such model: /models/tyop\n"))}
    told = trainer_pod(pod(status), NO_EVENTS).termination
    assert told is not None
    assert (told.reason, told.message) == ("Crashed", "no such model: /models/tyop")


def test_out_of_memory():
    status = {"phase": "Failed", **container(**ended(137, reason="OOMKilled"))}
    assert trainer_pod(pod(status), NO_EVENTS).oom_killed


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("PreemptionByScheduler", "PreemptionByScheduler"), ("SomethingNew", reasons.DISRUPTED)],
)
def test_a_disruption(reason: str, expected: str):
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "make room"}
    seen = trainer_pod(pod({"phase": "Failed", "conditions": [condition]}), NO_EVENTS)
    assert seen.disruption is not None
    assert seen.disruption.reason == expected
    assert "make room" in seen.disruption.message
    assert seen.exit_code is None


def test_why_a_container_waits():
    waiting = container(waiting={"reason": "ErrImagePull", "message": "no such image"})
    (fault,) = faults(pod({"phase": "Pending", **waiting}), NO_EVENTS)
    assert (fault.reason, "no such image" in fault.message) == ("ErrImagePull", True)


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_moments_wait_is_no_fault(reason: str):
    assert faults(pod({"phase": "Pending", **container(waiting={"reason": reason})}), NO_EVENTS) == ()


def test_no_node_has_room():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    (fault,) = faults(pod({"phase": "Pending", "conditions": [condition]}), NO_EVENTS)
    assert fault.reason == reasons.UNSCHEDULABLE


def test_a_mount_that_fails_is_told_by_the_newest_event():
    def event(reason: str, message: str, at: str, kind: str = "Pod") -> dict[str, Any]:
        about = {"kind": kind, "name": "demo-trainer-0-1-abcde"}
        return {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": at}

    events = EventsByObject(
        [
            event("FailedMount", "old", "2026-01-01T00:00:00Z"),
            event("FailedMount", "new", "2026-01-01T00:01:00Z"),
            event("Unhealthy", "other", "2026-01-01T00:02:00Z"),
            event("FailedMount", "another kind", "2026-01-01T00:03:00Z", kind="Job"),
        ]
    )
    waiting = pod({"phase": "Pending", **container(waiting={"reason": "ContainerCreating"})})
    (fault,) = faults(waiting, events)
    assert fault.message.endswith("new")
    assert faults(pod({"phase": "Running", **container(running={})}), events) == (), "it runs: that is over"


def test_the_last_end_of_containers_that_do_not_run():
    crashed = pod({**container(waiting={"reason": "CrashLoopBackOff"})})
    crashed["status"]["containerStatuses"][0]["lastState"] = ended(64, "2026-01-01T00:05:00Z")
    older = pod(container(**ended(1, "2026-01-01T00:01:00Z")))
    running = pod(container(running={}))
    running["status"]["containerStatuses"][0]["lastState"] = ended(65, "2026-01-01T00:09:00Z")
    end = last_end([older, crashed, running])
    assert end is not None
    assert end.exit_code == 64
    assert last_end([running]) is None
