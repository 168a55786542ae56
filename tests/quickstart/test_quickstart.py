"""The quickstart as a newcomer runs it, from three seeds: it Succeeds, and the model has learnt the task."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from tests.measurements import Measurements

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "runs/quickstart"


@pytest.fixture(scope="module")
def bench() -> Iterator[Measurements]:
    """The figures of this session; written to runs/bench/quickstart.json at the end."""
    measurements = Measurements(ROOT / "runs/bench/quickstart.json")
    yield measurements
    measurements.write()


def run(seed: int) -> str:
    """Run the quickstart; return what it printed."""
    command = [str(ROOT / "examples/quickstart/run.sh"), str(seed)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def read(name: str) -> dict[str, float | str]:
    """One of the reports it leaves."""
    report: dict[str, float | str] = json.loads((MADE / f"{name}.json").read_text())
    return report


def training_seconds(folder: Path) -> float:
    """Seconds from the first logged step to the last."""
    times = [json.loads(line)["time"] for line in (folder / "metrics/metrics.jsonl").read_text().splitlines()]
    return (datetime.fromisoformat(times[-1]) - datetime.fromisoformat(times[0])).total_seconds()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_accuracy_rises(seed: int, bench: Measurements, capsys: pytest.CaptureFixture[str]):
    printed = run(seed)
    before, after, result = read("before"), read("after"), read("result")
    assert result["phase"] == "Succeeded"
    with capsys.disabled():
        bench.add(f"seed {seed}: greedy accuracy before", float(before["greedy"]), "")
        bench.add(f"seed {seed}: greedy accuracy after", float(after["greedy"]), "")
        bench.add(f"seed {seed}: training", training_seconds(Path(str(result["outputDir"]))), "s", target=180)
    assert float(after["greedy"]) - float(before["greedy"]) >= 0.3
    assert Path(str(result["plot"])).read_bytes().startswith(b"\x89PNG")
    job = yaml.safe_load((Path(str(result["outputDir"])) / "job.yaml").read_text())
    assert job["status"]["progress"]["steps"] == "40/40"
    for words in ("Succeeded", str(result["modelPath"]), str(result["plot"]), "Try next"):
        assert words in printed


def test_no_constant_answer_scores():
    answers = [json.loads(line)["answer"] for line in (MADE / "heldout.jsonl").read_text().splitlines()]
    assert Counter(answers).most_common(1)[0][1] / len(answers) <= 0.2
