"""One GRPOJob from `kubectl apply` to a trained model, as a user sees it; and again with the other gather flag."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.jobs import output, prepare, read_jsonl, reward_code, sorting_job
from tests.e2e.operator import Operator
from tests.e2e.support import Kubectl, Volume
from tests.measurements import Measurements

pytestmark = pytest.mark.timeout(1500)

RUN_SECONDS = 420
"""Longest wait for one run of the small model on a busy machine."""


@dataclass
class Run:
    """What was seen of one run."""

    job: dict[str, Any]
    environment: dict[str, dict[str, str]]
    """Of each trainer pod, read in the running container."""
    folder: Path
    log: str
    """The operator's lines about it."""

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_jsonl(self.folder / "metrics/metrics.jsonl")

    @property
    def completions(self) -> list[dict[str, Any]]:
        return read_jsonl(self.folder / "metrics/completions.jsonl")


def follow(kubectl: Kubectl, operator: Operator, volume: Volume, manifest: dict[str, Any], bench: Measurements) -> Run:
    """Apply a job and follow it to its end, looking at what must hold on the way."""
    name = manifest["metadata"]["name"]
    before = operator.log()
    kubectl.apply(manifest)

    def reference_ready() -> bool:
        assert kubectl.get("grpo", name).get("status", {}).get("phase") != "Failed", kubectl.diagnosis()
        # The Job is looked for first: it must never be there while the reference is not ready.
        trainer = kubectl.exists("jobs", "-l", f"grpo.dev/job={name}")
        ready = kubectl.get("deployment", f"{name}-reference")["status"].get("readyReplicas", 0) == 1
        assert ready or not trainer, "the trainer Job was there before the reference was ready"
        return ready

    kubectl.wait("the reference is ready", reference_ready, timeout=180)
    attempt = f"{name}-trainer-0"
    kubectl.wait("the trainer Job is there", lambda: kubectl.exists("job", attempt), timeout=15)
    bench.add("trainer Job created after the reference is ready", _delay(kubectl, name, attempt), "s", target=2)

    pods = kubectl.wait("two trainer pods run", lambda: _running(kubectl, attempt), timeout=60)
    environment = {pod: _environment(kubectl, pod) for pod in pods}
    try:
        kubectl(
            "wait", "--for=condition=Succeeded", f"grpo/{name}", f"--timeout={RUN_SECONDS}s", timeout=RUN_SECONDS + 9
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kubectl.diagnosis()}") from None
    return Run(
        job=kubectl.get("grpo", name),
        environment=environment,
        folder=output(kubectl, volume, name),
        log=operator.log().removeprefix(before),
    )


def test_from_apply_to_a_trained_model(
    kubectl: Kubectl, operator: Operator, volume: Volume, bench: Measurements, capsys: pytest.CaptureFixture[str]
):
    prepare(volume)
    reward_code(kubectl)
    gathered = follow(
        kubectl, operator, volume, sorting_job(volume, "gathered", generation={"ds3GatherForGeneration": True}), bench
    )

    # The trainer: two pods, two hosts, one world, ZeRO-3 across both.
    ranks = _ranks(gathered.folder)
    assert sorted(ranks) == [0, 1]
    assert len({host for host, _, _ in ranks.values()}) == 2
    assert all(holds / of <= 0.55 for _, holds, of in ranks.values()), ranks
    for variables in gathered.environment.values():
        assert variables["REF_MODEL_URL"].startswith("http://gathered-reference.")
        assert variables["DS3_GATHER_FOR_GENERATION"] == "true"

    # The end: status, the reference gone, the model in the volume.
    row = kubectl("get", "grpo", "gathered").splitlines()[-1].split()
    assert row[1:3] == ["Succeeded", "5/5"], row
    kubectl.wait("the reference is gone", lambda: not kubectl.exists("deploy,svc", "gathered-reference"), timeout=30)
    assert gathered.job["status"]["modelPath"].endswith("/final")
    assert _parameters(gathered.folder / "final") == 108_096
    assert _weights(gathered.folder / "final").keys() == _weights(volume.folder / "sorting/model").keys()

    # The story in the operator's log.
    lines = gathered.log.splitlines()
    with capsys.disabled():
        print(f"\nthe operator's log of the run ({len(lines)} lines):", *lines, sep="\n  ")
    assert 3 <= len(lines) <= 40
    told = [_without_time(line) for line in lines]
    assert all(one != other for one, other in pairwise(told))
    bench.add("operator RSS", operator.rss_megabytes(), "MB", target=100)
    bench.add("operator log of one run", len(lines), "lines", target=40)

    # The same job layer by layer: the same completions, gradients and weights.
    layered = follow(
        kubectl, operator, volume, sorting_job(volume, "layered", generation={"ds3GatherForGeneration": False}), bench
    )
    assert {v["DS3_GATHER_FOR_GENERATION"] for v in layered.environment.values()} == {"false"}
    ids = [[row["completion_ids"] for row in run.completions] for run in (gathered, layered)]
    assert ids[0] == ids[1]
    advantages = [row["advantage"] for row in gathered.completions]
    assert max(map(abs, advantages)) > 0.5, "the comparison would mean nothing with zero advantages"
    norms = np.array([[row["grad_norm"] for row in run.metrics] for run in (gathered, layered)])
    assert norms.min() > 1e-3
    np.testing.assert_allclose(norms[0], norms[1], rtol=1e-5)
    one, other = (_weights(run.folder / "final") for run in (gathered, layered))
    start = _weights(volume.folder / "sorting/model")
    moved = max(float((one[name] - start[name]).abs().max()) for name in one)
    assert moved > 1e-3, "the comparison would mean nothing if the weights had hardly moved"
    assert max(float((one[name] - other[name]).abs().max()) for name in one) <= 1e-5


def _running(kubectl: Kubectl, attempt: str) -> list[str]:
    pods = kubectl.get("pods", "-l", f"job-name={attempt}")["items"]
    running = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]
    return running if len(running) == 2 else []


def _environment(kubectl: Kubectl, pod: str) -> dict[str, str]:
    lines = kubectl("exec", pod, "--", "python", "-c", "import os\nfor k, v in os.environ.items(): print(f'{k}={v}')")
    return dict(line.split("=", 1) for line in lines.splitlines() if "=" in line)


def _ranks(folder: Path) -> dict[int, tuple[str, int, int]]:
    """rank → (host, parameters held, parameters of the model), from the ranks' logs in the volume."""
    pattern = re.compile(r"rank (\d+) of 2 on (\S+): holds (\d+) of (\d+) parameters")
    text = "\n".join(path.read_text() for path in sorted((folder / "logs").glob("*.log")))
    return {int(m[1]): (m[2], int(m[3]), int(m[4])) for m in pattern.finditer(text)}


def _delay(kubectl: Kubectl, name: str, attempt: str) -> float:
    """Seconds from the reference pod's readiness to the Job's creation, by Kubernetes' stamps (whole seconds)."""
    [pod] = kubectl.get("pods", "-l", f"grpo.dev/job={name},grpo.dev/component=reference")["items"]
    ready = next(c["lastTransitionTime"] for c in pod["status"]["conditions"] if c["type"] == "Ready")
    created = kubectl.get("job", attempt)["metadata"]["creationTimestamp"]
    return (datetime.fromisoformat(created) - datetime.fromisoformat(ready)).total_seconds()


def _parameters(folder: Path) -> int:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert AutoTokenizer.from_pretrained(folder).eos_token_id == 2
    return sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(folder).parameters())


def _weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def _without_time(line: str) -> str:
    return re.sub(r"^\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(Z|[+-]\d\d:?\d\d)?\]?\s*", "", line)


def test_deleting_the_namespace_of_a_running_job_is_not_stuck(kubectl: Kubectl, operator: Operator, volume: Volume):
    prepare(volume)
    reward_code(kubectl)
    kubectl.apply(sorting_job(volume, "doomed"))
    kubectl.wait("the reference pod is there", lambda: kubectl.exists("pods", "-l", "grpo.dev/job=doomed"), timeout=60)
    start = time.monotonic()
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=120s", timeout=130)
    assert time.monotonic() - start < 120
