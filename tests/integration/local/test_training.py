"""`grpo run` with everything real: a reference server, two ZeRO-3 ranks, and a rank that is killed."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from grpo_operator.manifest import dump, load
from grpo_operator.validate import validate
from grpo_trainer.progress import ProgressBoard

from tests.dashboard import exported, queried
from tests.integration.local.runs import Run, grpo_run, wait_until
from tests.unit.trainer.tiny_model import save_tiny_model

GRPO = [sys.executable, "-m", "grpo_operator.cli"]

REWARD = '''
def spread(completion_ids, **kwargs):
    """Some number that differs between completions."""
    return [sum(token % 5 for token in ids) / 20 for ids in completion_ids]


def broken(completion_ids, **kwargs):
    raise ValueError("no verdict on such a completion")
'''


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random model, prompts and reward functions: what the job names by relative paths."""
    folder = tmp_path_factory.mktemp("local")
    save_tiny_model(folder / "model")
    rows = [{"prompt": f"{number}>"} for number in range(32)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "code").mkdir()
    (folder / "code" / "judge.py").write_text(REWARD)
    return folder


def write_job(folder: Path, reward: str, steps: int, beta: float = 0.04) -> Path:
    job = {
        "apiVersion": "grpo.dev/v1alpha1",
        "kind": "GRPOJob",
        "metadata": {"name": "tiny"},
        "spec": {
            "model": {"name": "model", "dtype": "float32"},
            "hub": {"offline": True},
            "dataset": {"name": "prompts.jsonl", "maxPromptLength": 16},
            "rewards": {"functions": [{"function": f"judge:{reward}"}]},
            "generation": {"numGenerations": 4, "maxCompletionLength": 8},
            "optimization": {
                "beta": beta,
                "maxSteps": steps,
                "perDeviceTrainBatchSize": 4,
                "learningRate": 1e-3,
                "gradientCheckpointing": False,
            },
            "trainer": {"replicas": 2},
            "checkpoint": {"everySteps": 2, "keep": 2},
        },
    }
    path = folder / f"{reward}.yaml"
    path.write_text(dump([job]))
    return path


def steps_told(run: Run) -> list[int]:
    metrics = run.folder / "metrics" / "metrics.jsonl"
    return [json.loads(line)["step"] for line in metrics.read_text().splitlines()] if metrics.exists() else []


def ranks(run: Run) -> list[int]:
    """The process ids of the rank processes below `grpo run`."""
    found, seen = [], [run.process.pid]
    while seen:
        parent = seen.pop()
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        seen += [int(child) for child in children]
        command = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
        if b"grpo_trainer.main" in command:
            found.append(parent)
    return found


@pytest.mark.timeout(600)
def test_a_killed_rank_costs_one_restart_and_the_job_succeeds(workspace: Path):
    steps = 40
    job = write_job(workspace, "spread", steps)
    with grpo_run(workspace, job, "--reward-path", "code", command=GRPO, name="tiny", OMP_NUM_THREADS="1") as run:
        wait_until(lambda: (run.output / "tiny").exists() and steps_told(run), "first step", 240)
        # One complete checkpoint is there to go on from.
        wait_until(lambda: list(run.folder.glob("checkpoints/step-*/manifest.json")), "checkpoint", 120)
        os.kill(ranks(run)[-1], signal.SIGKILL)
        status, printed = run.end(300)
    assert status == 0, printed
    result = json.loads((workspace / "result.json").read_text())
    assert (result["phase"], result["restarts"], result["steps"]) == ("Succeeded", 1, f"{steps}/{steps}"), printed
    assert Path(result["plot"]).read_bytes().startswith(b"\x89PNG")
    assert (Path(result["modelPath"]) / "config.json").exists()
    told = steps_told(run)
    assert max(told) == steps
    assert told.count(1) == 1, f"the second attempt began anew instead of going on: {told}"
    rows = (run.folder / "metrics" / "metrics.jsonl").read_text().splitlines()
    board = ProgressBoard(attempt=0)
    board.metrics({name: value for name, value in json.loads(rows[-1]).items() if isinstance(value, int | float)})
    assert queried("grpo_trainer_") <= exported(board.exposition().decode()), "what the dashboard asks for is there"
    saved = load(str(run.folder / "job.yaml"))
    last = validate(saved).status.trainer.last_termination
    assert (last.attempt, last.cause) == (0, "Crash")
    assert "SIGKILL" in last.message


@pytest.mark.timeout(600)
def test_a_reward_functions_exception_is_the_jobs_reason(workspace: Path):
    job = write_job(workspace, "broken", 4, beta=0.0)
    with grpo_run(workspace, job, "--reward-path", "code", command=GRPO, name="tiny", OMP_NUM_THREADS="1") as run:
        status, printed = run.end(300)
    assert status == 1
    result = json.loads((workspace / "result.json").read_text())
    assert result["reason"] == "RewardError"
    assert "ValueError: no verdict on such a completion" in result["message"]
    assert result["restarts"] == 0
    assert "Failed: " in printed
