"""A run that is killed, resumed, asked to stop, and resumed again ends with the very weights of one never touched."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trainer.jobs import Running, Workspace, assert_same_run, ended_well, kill_rank, start
from tests.integration.trainer.refserver import ReferenceServer
from tests.integration.trainer.variants import run_variants, variant

pytestmark = pytest.mark.timeout(2400)

STEPS = 12


def progress(running: Running) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/progress", timeout=10) as response:
        answer: dict[str, Any] = json.loads(response.read())
        return answer


def reached(step: int) -> Any:
    return lambda text: f"step {step}/{STEPS} " in text


def test_killed_and_stopped_equals_untouched(workspace: Workspace, refserver: ReferenceServer, tmp_path: Path) -> None:
    # Epochs of two generation batches, two steps each: the data position passes an epoch's end.
    spec = workspace.spec(
        optimization={"beta": 0.04, "maxSteps": STEPS, "numIterations": 2, "warmupSteps": 3},
        dataset={"split": "train[:5]"},
        checkpoint={"everySteps": 4, "keep": 2},
        reference={"deterministic": True},
    )
    folder = tmp_path / "run"
    options: dict[str, Any] = {"url": refserver.url, "token": refserver.token, "gather": "true"}

    killed = start(spec, folder, workspace, attempt=0, **options)
    try:
        killed.wait_for("step 6", reached(6))
        told = progress(killed)
        kill_rank(killed, 1)
        run = killed.finish(120)
    finally:
        killed.kill()
    assert (told["attempt"], told["totalSteps"], told["checkpointStep"]) == (0, STEPS, 4)
    assert told["step"] >= 6
    assert run.code == 137, run.output[-3000:]
    assert run.termination is not None
    assert (run.termination.reason, run.termination.rank, run.termination.exit_code) == ("Crashed", 1, 137)
    # The first rank loses its peer at once, and waits so that the cause is seen first.
    assert "a peer of rank 0 is gone" in run.output

    # A checkpoint that was being written when it happened is no checkpoint.
    newest = max(int(path.name.split("-")[1]) for path in (folder / "checkpoints").glob("step-*[0-9]"))
    torn = folder / f"checkpoints/step-{newest + 100}"
    torn.mkdir()
    (torn / "deepspeed").write_text("half")

    stopped = start(spec, folder, workspace, attempt=1, **options)
    try:
        stopped.wait_for("a resumed step", reached(newest + 1))
        stopped.process.send_signal(signal.SIGTERM)
        run = stopped.finish(120)
    finally:
        stopped.kill()
    assert f"resumed at step {newest}" in run.output
    assert run.code == 75, run.output[-3000:]
    assert run.termination is not None
    assert run.termination.reason == "Terminated"
    saved = run.termination.step
    assert saved is not None
    assert newest < saved < STEPS
    assert saved % 2 == 0, "at a boundary of a generation batch"
    assert (folder / f"checkpoints/step-{saved}/manifest.json").exists()

    resumed = start(spec, folder, workspace, attempt=2, **options)
    try:
        run = ended_well(resumed.finish())
    finally:
        resumed.kill()
    assert f"resumed at step {saved}" in run.output
    assert run.termination is not None
    assert (run.termination.reason, run.termination.step) == ("Succeeded", STEPS)
    assert run.termination.model_path == str(folder / "final")
    kept = sorted(path.name for path in (folder / "checkpoints").glob("step-*/manifest.json"))
    assert len(kept) == 2
    assert sorted(path.name for path in (folder / "logs").iterdir()) == [f"attempt-{n}-pod-0.log" for n in range(3)]

    whole = run_variants(
        tmp_path / "whole", workspace, 2, [variant("run", spec, url=refserver.url, gather="true")],
        GRPO_TOKEN_FILE=str(refserver.token),
    )["run"]  # fmt: skip
    assert_same_run(run, whole, STEPS)

    # An older attempt that comes late may not write.
    older = start(spec, folder, workspace, attempt=1, **options)
    try:
        refused = older.finish()
    finally:
        older.kill()
    assert refused.code == 75
    assert refused.termination is not None
    assert refused.termination.reason == "Superseded"
