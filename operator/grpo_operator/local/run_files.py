"""The files of one local run: `<output>/<job>/<uid>/`, laid out as in a cluster's volume."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from grpo_api import layout
from grpo_api.progress import Termination
from grpo_api.v1alpha1 import GRPOJob, Status
from pydantic import ValidationError

from grpo_operator import environment, manifest


class RunFilesError(Exception):
    """A folder that is not a local run, or not one that can go on."""


@dataclass(frozen=True)
class RunFiles:
    """Where the files of a run lie. `folder` is absolute: it is GRPO_OUTPUT_DIR."""

    folder: Path

    @staticmethod
    def of(output: Path, job: GRPOJob) -> "RunFiles":
        """Return the files of a job below the folder of all runs."""
        return RunFiles(Path(layout.output_dir(str(output.absolute()), job.metadata.name, job.metadata.uid)))

    @property
    def config(self) -> Path:
        """The file GRPO_CONFIG."""
        return self.folder / "run" / "config.json"

    @property
    def token(self) -> Path:
        """The bearer token's file."""
        return self.folder / "run" / "token"

    @property
    def job(self) -> Path:
        """The job with its status, as `kubectl get -o yaml` would show it."""
        return self.folder / "job.yaml"

    @property
    def metrics(self) -> Path:
        """Metrics of every step."""
        return self.folder / layout.METRICS / "metrics.jsonl"

    @property
    def plot(self) -> Path:
        """The plot of the reward, made at the end."""
        return self.folder / "reward.png"

    @property
    def reference_log(self) -> Path:
        """What the reference server prints."""
        return self.folder / layout.LOGS / "reference.log"

    def pod_log(self, attempt: int, index: int) -> Path:
        """What a trainer pod prints; the pod itself writes it."""
        return self.folder / layout.LOGS / f"attempt-{attempt}-pod-{index}.log"

    def launcher_log(self, attempt: int, index: int) -> Path:
        """What the pod's launcher prints besides: why it could not start its ranks."""
        return self.folder / layout.LOGS / f"attempt-{attempt}-pod-{index}.launcher.log"

    def termination_log(self, attempt: int, index: int) -> Path:
        """The termination log of a trainer pod."""
        return self.folder / "run" / f"attempt-{attempt}-pod-{index}.termination.json"

    @property
    def reference_termination_log(self) -> Path:
        """The termination log of the reference server."""
        return self.folder / "run" / "reference.termination.json"

    def prepare(self, job: GRPOJob) -> None:
        """Make the folders, the token (readable by its owner alone) and the config."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.reference_log.parent.mkdir(exist_ok=True)
        if not self.token.exists():
            self.token.touch(mode=0o600)
            self.token.write_text(secrets.token_urlsafe(32))
        _replace(self.config, environment.config_json(job))

    def check_writable(self) -> None:
        """Make the folder, and try to write in it.

        Raises:
            RunFilesError: it cannot be made or written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise RunFilesError(f"--output: the folder {self.folder} cannot be written: {error}") from error

    def save(self, job: GRPOJob) -> None:
        """Write the job with its status, as a whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _replace(self.job, manifest.dump([job.to_manifest()]))

    def load_status(self) -> Status:
        """Return the status that was saved last.

        Raises:
            RunFilesError: there is none that can be read.
        """
        try:
            return GRPOJob.model_validate_json(_json(manifest.load(str(self.job)).data)).status
        except (manifest.ManifestError, ValidationError) as error:
            raise RunFilesError(f"{self.folder} is not the folder of a local run: {error}") from error


def check_result(path: Path) -> None:
    """Make the folder of the result file, and try to write there; what the file held before stays.

    Raises:
        RunFilesError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.exists()
        with path.open("ab"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise RunFilesError(f"--result: the file {path} cannot be written: {error}") from error


def read_termination(path: Path) -> Termination | None:
    """Return what a pod wrote to its termination log, or None where it wrote nothing that can be read."""
    try:
        return Termination.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole or not at all: a process may be reading it just now."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(text)
    draft.replace(path)


def _json(data: object) -> str:
    import json

    return json.dumps(data, default=str)
