"""Starts `grpo run` as a user would, in a process of its own, and looks at what it leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_operator.manifest import dump

STANDIN = [sys.executable, str(Path(__file__).parent / "standin" / "grpo.py")]


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Return the condition's first true value; fail with its name where it does not come in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"within {seconds} s there was no {what}")


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie that waits for its parent does not)."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@dataclass
class Run:
    """A `grpo run` that goes on."""

    process: subprocess.Popen[str]
    output: Path
    job: str

    @property
    def folder(self) -> Path:
        """The newest run's folder."""
        return max((self.output / self.job).iterdir(), key=lambda path: path.stat().st_mtime)

    def started(self) -> list[dict[str, Any]]:
        """What the stand-in trainers noted at their start."""
        files = list((self.output / self.job).glob("*/started"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def end(self, seconds: float = 60) -> tuple[int, str]:
        """Wait for the end; return (exit status, what was printed)."""
        printed, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, printed

    def signal(self, number: signal.Signals) -> None:
        """Send `grpo` a signal, and nobody else."""
        self.process.send_signal(number)


def write_job(path: Path, **spec: Any) -> Path:
    """Write a job of two trainer pods; `spec` replaces groups."""
    job = {
        "apiVersion": "grpo.dev/v1alpha1",
        "kind": "GRPOJob",
        "metadata": {"name": "demo"},
        "spec": {
            "model": {"name": "model"},
            "dataset": {"name": "data"},
            "rewards": {"functions": [{"function": "accuracy"}]},
            "trainer": {"replicas": 2, "terminationGracePeriodSeconds": 20},
            **spec,
        },
    }
    path.write_text(dump([job]))
    return path


@contextmanager
def grpo_run(
    folder: Path, job: Path, *arguments: str, command: list[str] = STANDIN, name: str = "demo", **variables: str
) -> Iterator[Run]:
    """Start `grpo run`; on the way out it is ended, and all it started must be gone."""
    output = folder / "runs"
    process = subprocess.Popen(
        [*command, "run", str(job), "--output", str(output), "--result", str(folder / "result.json"), *arguments],
        env={**os.environ, **variables},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    run = Run(process, output, name)
    try:
        yield run
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise
