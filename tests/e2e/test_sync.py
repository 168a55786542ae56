"""Iterative GRPO on a real node: two reference replicas behind a real Service, one deleted in the middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import MOUNT, output, prepare, read_jsonl, sorting_job
from tests.e2e.operator import Operator
from tests.e2e.support import Kubectl, Volume

pytestmark = pytest.mark.timeout(1500)

STEPS, EVERY = 40, 4
HOLD = "hold"
HELD = "held"

REWARD = f"""
import os, time


def digits(completion_ids, **kwargs):
    while os.path.exists("{MOUNT}/{HOLD}"):  # so that a test can look around while the training waits
        open("{MOUNT}/{HELD}", "w").close()
        time.sleep(0.1)
    return [sum(i * (token % 7) for i, token in enumerate(ids, 1)) / 10 for ids in completion_ids]
"""
"""A reward that differs between completions."""

ASK = """
import json, sys, urllib.request
token = open("/run/grpo/token/token").read().strip()
body = {"groups": [{"prompt": [1, 3], "completions": [[4, 5]]}], "version": sys.argv[1], "versionPath": sys.argv[2]}
headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
request = urllib.request.Request("http://127.0.0.1:8000/v1/logprobs", json.dumps(body).encode(), headers)
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""
"""Asks the server of its own pod for log-probabilities under a version."""


def test_the_reference_is_replaced_on_every_replica(kubectl: Kubectl, operator: Operator, volume: Volume):
    prepare(volume)
    code = volume.folder / "gated.py"
    code.write_text(REWARD)
    kubectl("create", "configmap", "rewards", f"--from-file={code}")
    job = sorting_job(
        volume,
        "iterative",
        rewards={"functions": [{"function": "gated:digits", "timeoutSeconds": 400}]},
        optimization={"maxSteps": STEPS, "numIterations": 2},
        reference={"replicas": 2, "sync": {"everySteps": EVERY, "mixupAlpha": 1.0}},
        checkpoint={"everySteps": 10, "keep": 1},
        cleanupPolicy="Retain",
    )
    kubectl.apply(job)
    folder = output(kubectl, volume, "iterative")
    kubectl.wait("a version is written", lambda: _newest(folder) > 0, timeout=420)
    (volume.folder / HOLD).touch()
    # A batch that is past its rewards may still end with a new version, which does away with the one before. A rank
    # that waits has left the last version's collectives behind it, and the other one does not get past this batch's.
    kubectl.wait("a rank waits", (volume.folder / HELD).exists, timeout=120)
    container = kubectl.get("deploy", "iterative-reference")["spec"]["template"]["spec"]["containers"][0]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "output")
    assert (mount["mountPath"], mount["readOnly"]) == ("/output", True)

    # Both replicas load what the trainer wrote; one is deleted, and the next one does too.
    before = _ready(kubectl)
    assert len(before) == 2
    held = f"step-{_newest(folder)}"
    first = {pod: _ask(kubectl, pod, held) for pod in before}
    victim = min(before)
    kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    kubectl.wait("the replica is replaced", lambda: len(_ready(kubectl) - {victim}) == 2, timeout=240)
    (new,) = _ready(kubectl) - before
    replicas = sorted(before - {victim} | {new})
    answers = [*first.values(), _ask(kubectl, new, held)]
    assert {answer["version"] for answer in answers} == {held}
    assert len({json.dumps(answer["logprobs"]) for answer in answers}) == 1
    (volume.folder / HOLD).unlink()

    kubectl("wait", "--for=condition=Succeeded", "grpo/iterative", "--timeout=420s", timeout=430)
    status = kubectl.get("grpo", "iterative")["status"]
    assert status["progress"]["steps"] == f"{STEPS}/{STEPS}"
    assert (status["restarts"], status["disruptions"]) == (0, 0), "the trainer went on all the while"
    assert status["reference"]["version"].startswith("step-")
    last = f"step-{STEPS - EVERY}"
    assert {path.name for path in (folder / "versions").iterdir() if path.is_dir()} == {last}
    assert [_ask(kubectl, pod, last)["version"] for pod in replicas] == [last, last]
    rows = {row["step"]: row for row in read_jsonl(folder / "metrics/metrics.jsonl")}
    assert sorted(rows) == list(range(1, STEPS + 1))
    # Two steps a batch: in the first one after a replacement the policy is the reference.
    assert all(rows[step]["reference/step"] == EVERY * ((step - 1) // EVERY) for step in rows)
    assert max(abs(rows[step]["kl"]) for step in range(EVERY + 1, STEPS, EVERY)) < 1e-5
    # In the last one before, it has left the reference behind, until the task is learnt and it stands still.
    assert max(rows[step]["kl"] for step in range(EVERY, STEPS, EVERY)) > 1e-4


def _newest(folder: Path) -> int:
    """The step of the newest version, 0 before the first."""
    return max((int(path.name.partition("-")[2]) for path in (folder / "versions").glob("step-*[0-9]")), default=0)


def _ready(kubectl: Kubectl) -> set[str]:
    """Names of the reference pods that are ready."""
    pods = kubectl.get("pods", "-l", "grpo.dev/job=iterative,grpo.dev/component=reference")["items"]
    return {
        pod["metadata"]["name"]
        for pod in pods
        if any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
    }


def _ask(kubectl: Kubectl, pod: str, version: str) -> dict[str, Any]:
    """What a replica answers when a version that the trainer wrote is wanted of it."""
    uid = kubectl.get("grpo", "iterative")["metadata"]["uid"]
    path = f"/output/iterative/{uid}/versions/{version}"
    answer: dict[str, Any] = json.loads(kubectl("exec", pod, "--", "python", "-c", ASK, version, path, timeout=90))
    return answer
