"""Small jobs for the trainer, and real runs of it: rank processes by `grpo-trainer`, gloo, DeepSpeed."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_api import env
from grpo_api.progress import Termination
from grpo_api.termination import read_termination

from tests.server_process import free_port

RUN_SECONDS = 600
"""Longest wait for a small run on a busy machine."""

Spec = dict[str, Any]


@dataclass(frozen=True)
class Workspace:
    """A folder with a tiny model, prompts, and a module of reward functions."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def spec(self, **groups: dict[str, Any]) -> Spec:
        """A spec of 2 ranks with ZeRO-3 and beta 0; `groups` are merged over it."""
        spec: Spec = {
            "model": {"name": str(self.model), "dtype": "float32"},
            "dataset": {"name": str(self.folder / "prompts.jsonl"), "maxPromptLength": 16},
            "rewards": {"functions": [{"function": "lettercount:letters"}]},
            "generation": {"numGenerations": 4, "maxCompletionLength": 8},
            "optimization": {
                "beta": 0.0,
                "learningRate": 1e-3,
                "perDeviceTrainBatchSize": 4,
                "maxSteps": 4,
                "gradientCheckpointing": False,
            },
            "trainer": {"replicas": 2, "rendezvousTimeoutSeconds": 120, "collectiveTimeoutSeconds": 400},
            "checkpoint": {"everySteps": 2},
            "logging": {"completions": True, "reportTo": "none"},
        }
        return merged(spec, groups)


@dataclass
class Run:
    """A run of the trainer that has ended."""

    code: int
    output: str
    """What the launcher and the ranks printed."""
    folder: Path
    termination: Termination | None
    seconds: float = 0.0

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_jsonl(self.folder / "metrics/metrics.jsonl")

    @property
    def completions(self) -> list[dict[str, Any]]:
        return read_jsonl(self.folder / "metrics/completions.jsonl")

    def weights(self) -> dict[str, Any]:
        from safetensors.torch import load_file

        return load_file(self.folder / "final/model.safetensors")


@dataclass
class Running:
    """A trainer pod, as processes of this machine."""

    process: subprocess.Popen[str]
    folder: Path
    log: Path
    termination_log: Path
    port: int
    started: float = field(default_factory=time.monotonic)

    def finish(self, seconds: float = RUN_SECONDS) -> Run:
        try:
            code = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {seconds} s:\n{self.text()[-5000:]}") from None
        return Run(
            code, self.text(), self.folder, read_termination(self.termination_log), time.monotonic() - self.started
        )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()  # the ranks die with their launcher
        self.process.wait()

    def wait_for(self, what: str, condition: Callable[[str], bool], seconds: float = RUN_SECONDS) -> None:
        """Wait until what was printed meets a condition."""
        deadline = time.monotonic() + seconds
        while not condition(self.text()):
            assert self.process.poll() is None, f"ended while waiting for {what}:\n{self.text()[-5000:]}"
            assert time.monotonic() < deadline, f"{what} did not come within {seconds} s:\n{self.text()[-5000:]}"
            time.sleep(0.02)

    def rank_pids(self) -> dict[int, int]:
        """Global rank → process id, from the processes' environment."""
        pids = {}
        for child in _children(self.process.pid):
            variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            rank = next((v for v in variables if v.startswith(b"RANK=")), None)
            if rank is not None:
                pids[int(rank[5:])] = child
        return pids


def start(
    spec: Spec,
    folder: Path,
    workspace: Workspace,
    *,
    attempt: int = 0,
    url: str = "",
    token: Path | None = None,
    gather: str = "",
    variables: dict[str, str] | None = None,
) -> Running:
    """Start a trainer pod that holds all ranks, as the operator would."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"config-{attempt}.json"
    config.write_text(json.dumps({"metadata": {"name": folder.name}, "spec": spec}))
    replicas = spec["trainer"].get("replicas", 1) * spec["trainer"].get("processesPerPod", 1)
    termination_log = folder / f"termination-{attempt}.json"
    log = folder / f"printed-{attempt}.log"
    port = free_port()
    environment = clean_environment(workspace) | {
        env.GRPO_CONFIG: str(config),
        env.GRPO_OUTPUT_DIR: str(folder),
        env.GRPO_ATTEMPT: str(attempt),
        env.GRPO_TERMINATION_LOG: str(termination_log),
        env.GRPO_PROGRESS_PORT: str(port),
        env.REF_MODEL_URL: url,
        env.DS3_GATHER_FOR_GENERATION: gather,
        env.GRPO_TOKEN_FILE: "" if token is None else str(token),
        # Two pods of one rank each would be two launchers; one launcher with all ranks starts as many processes.
        env.PET_NNODES: "1",
        env.PET_NPROC_PER_NODE: str(replicas),
        env.PET_NODE_RANK: "0",
        env.PET_MASTER_ADDR: "127.0.0.1",
        env.PET_MASTER_PORT: str(free_port()),
    }
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "grpo_trainer.launch"],
            env=environment | (variables or {}),
            stdout=stream,
            stderr=subprocess.STDOUT,
            text=True,
        )
    return Running(process, folder, log, termination_log, port)


def run(spec: Spec, folder: Path, workspace: Workspace, **options: Any) -> Run:
    """Run a trainer pod to its end."""
    running = start(spec, folder, workspace, **options)
    try:
        return running.finish()
    finally:
        if running.process.poll() is None:
            running.kill()


def clean_environment(workspace: Workspace) -> dict[str, str]:
    """The environment of a rank without what this process' own environment says about ranks."""
    reserved = {*env.RESERVED, "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    kept = {name: value for name, value in os.environ.items() if name not in reserved}
    return kept | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(workspace.folder / "code"),
        "HF_DATASETS_CACHE": str(workspace.folder / "datasets"),
    }


def ended_well(run: Run) -> Run:
    """The run, if it succeeded."""
    assert run.code == 0, run.output[-6000:]
    return run


def assert_same_run(resumed: Run, whole: Run, steps: int) -> None:
    """Bit-identical weights, and every step told as in the run that was never killed (a repeated step as told last)."""
    import torch

    ours, theirs = resumed.weights(), whole.weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    told_last = {row["step"]: row for row in resumed.metrics}
    names = ("loss", "grad_norm", "kl", "reward", "reference/step")
    assert len(whole.metrics) == steps
    for row in whole.metrics:
        assert [told_last[row["step"]].get(name) for name in names] == [row.get(name) for name in names]


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def kill_rank(running: Running, rank: int) -> None:
    os.kill(running.rank_pids()[rank], signal.SIGKILL)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]
