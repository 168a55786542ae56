"""Faults on a real node: a killed rank, a wrong image, children deleted or edited by hand."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from tests.e2e.jobs import MOUNT, output, prepare, read_jsonl, reward_code, sorting_job
from tests.e2e.operator import Operator
from tests.e2e.support import Kubectl, Volume

pytestmark = pytest.mark.timeout(1200)

KILL = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        command = open(f"/proc/{pid}/cmdline").read().split("\\0")
    except OSError:
        continue
    if "grpo_trainer.main" in command:
        os.kill(int(pid), signal.SIGKILL)
        print("killed", pid)
"""
"""Kills the rank's process in its own pod."""


def test_a_killed_rank_is_replaced_and_the_run_resumed(kubectl: Kubectl, operator: Operator, volume: Volume):
    prepare(volume)
    reward_code(kubectl)
    job = sorting_job(volume, "killed", optimization={"maxSteps": 60}, checkpoint={"everySteps": 2})
    kubectl.apply(job)
    folder = output(kubectl, volume, "killed")
    kubectl.wait("a checkpoint", lambda: any((folder / "checkpoints").glob("step-*/*.json")), timeout=300)
    pods = kubectl.get("pods", "-l", "job-name=killed-trainer-0")["items"]
    victim = next(pod["metadata"]["name"] for pod in pods if "-trainer-0-1-" in pod["metadata"]["name"])
    assert "killed" in kubectl("exec", victim, "--", "python", "-c", KILL)

    kubectl("wait", "--for=condition=Succeeded", "grpo/killed", "--timeout=420s", timeout=430)
    status = kubectl.get("grpo", "killed")["status"]
    assert status["restarts"] == 1
    assert status["trainer"]["attempt"] == 1
    assert status["progress"]["steps"] == "60/60"
    # Resumed, not begun again: the second attempt's first step comes after a checkpoint.
    steps = [row["step"] for row in read_jsonl(folder / "metrics/metrics.jsonl")]
    fallen_back = [(a, b) for a, b in pairwise(steps) if b <= a]
    assert all(b > 1 for _, b in fallen_back), steps
    assert sorted(set(steps)) == list(range(1, 61))

    # Deleting the job: every child goes, the volume's claim stays.
    kubectl("delete", "grpo", "killed", "--wait=true")
    kinds = "deploy,svc,job,pod,configmap,secret,networkpolicy"
    kubectl.wait("all children are gone", lambda: not kubectl.exists(kinds, "-l", "grpo.dev/job=killed"), timeout=120)
    assert kubectl.exists("pvc", volume.claim)
    assert (folder / "final/model.safetensors").exists()


def test_a_wrong_image_is_told_by_get_and_describe(kubectl: Kubectl, operator: Operator, volume: Volume):
    job = sorting_job(volume, "typo", reference={"image": "localhost/grpo-no-such-image:dev"})
    reward_code(kubectl)
    kubectl.apply(job)
    kubectl.wait(
        "ImagePullBackOff in kubectl get grpo", lambda: "ImagePullBackOff" in kubectl("get", "grpo", "typo"), timeout=30
    )
    described = kubectl("describe", "grpo", "typo")
    assert "ImagePullBackOff" in described
    assert "localhost/grpo-no-such-image:dev" in described


def test_children_changed_by_hand_are_put_back(kubectl: Kubectl, operator: Operator, volume: Volume):
    prepare(volume)
    reward_code(kubectl)
    # The trainer's image does not exist, so that the job stays where it is.
    kubectl.apply(sorting_job(volume, "drift", trainer={"image": "localhost/grpo-no-such-image:dev"}))
    kubectl.wait(
        "the reference is ready",
        lambda: kubectl.get("deploy", "drift-reference")["status"].get("readyReplicas") == 1,
        timeout=180,
    )
    before = kubectl.get("service", "drift-reference")["metadata"]["uid"]
    kubectl("delete", "service", "drift-reference")
    kubectl.wait(
        "the Service is back",
        lambda: kubectl.get("service", "drift-reference")["metadata"]["uid"] != before,
        timeout=10,
    )

    path = "/spec/template/spec/containers/0/args"

    def arguments() -> list[str]:
        found: list[str] = kubectl.get("deploy", "drift-reference")["spec"]["template"]["spec"]["containers"][0]["args"]
        return found

    wanted = arguments()
    position = wanted.index(f"{MOUNT}/sorting/model")
    edit = [{"op": "replace", "path": f"{path}/{position}", "value": f"{MOUNT}/another"}]
    generation = kubectl.get("deploy", "drift-reference")["metadata"]["generation"]
    kubectl("patch", "deploy", "drift-reference", "--type=json", "-p", json.dumps(edit))
    kubectl.wait("the model is back", lambda: arguments() == wanted, timeout=10)
    assert kubectl.get("deploy", "drift-reference")["metadata"]["generation"] == generation + 2
