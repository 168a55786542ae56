"""What is left when a local run has ended: a plot, a result file, and the words that say so."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.local.gang import tail
from grpo_operator.local.run_files import RunFiles


@dataclass(frozen=True)
class Outcome:
    """The end of a run."""

    job: GRPOJob
    files: RunFiles
    plot: Path | None
    """The plot, if one could be drawn."""

    def to_json(self) -> str:
        """Return the text of the result file."""
        status = self.job.status
        result = {
            "phase": status.phase,
            "reason": status.reason,
            "message": status.message,
            "modelPath": status.model_path,
            "plot": str(self.plot) if self.plot else None,
            "outputDir": str(self.files.folder),
            "restarts": status.restarts,
            "disruptions": status.disruptions,
            "steps": status.progress.steps if status.progress else None,
        }
        return json.dumps(result, indent=2) + "\n"

    def lines(self) -> Iterator[str]:
        """Yield what to tell the user."""
        status = self.job.status
        yield f"{status.phase}: {status.message}"
        if status.progress:
            reward = "" if status.progress.reward is None else f", reward {status.progress.reward:.3g}"
            yield f"  steps     {status.progress.steps}{reward}, restarts {status.restarts}"
        if status.model_path:
            yield f"  model     {status.model_path}"
        if self.plot:
            yield f"  plot      {self.plot}"
        yield f"  files     {self.files.folder}"
        if status.phase == "Failed":
            yield from self._last_log_lines()

    def _last_log_lines(self) -> Iterator[str]:
        for log in self._logs():
            lines = tail(log, 8)
            if lines:
                yield f"  last lines of {log}:"
                yield from (f"    {line}" for line in lines)

    def _logs(self) -> Iterator[Path]:
        trainer = self.job.status.trainer
        if trainer is None:
            yield self.files.reference_log
            return
        for index in range(self.job.spec.trainer.replicas):
            log = self.files.pod_log(trainer.attempt, index)
            yield log if log.exists() else self.files.launcher_log(trainer.attempt, index)


def draw_plot(job: GRPOJob, files: RunFiles) -> Path | None:
    """Draw the reward over the steps (matplotlib is the trainer's); return None where nothing was logged to draw."""
    if not files.metrics.exists():
        return None
    command = [sys.executable, "-m", "grpo_trainer.plot", str(files.metrics), str(files.plot)]
    done = subprocess.run(
        [*command, "--title", job.metadata.name], capture_output=True, text=True, timeout=120, check=False
    )
    return files.plot if done.returncode == 0 else None
