"""The files of the reference's versions (iterative GRPO): written whole or not at all, kept as long as asked for.

versions/step-<n>                        a version, in Hugging Face's layout: the reference as of optimizer step n
versions/step-<n>.attempt-<a>.partial    being written; renamed to step-<n> in one piece when all is on disk
versions/names                           every name that was ever given, one a line

A name is never given twice. A run that falls back to a checkpoint and comes to step n again may have other weights
there (other hardware, no `reference.deterministic`), and a server that still holds the first `step-<n>` would take the
second for what it has. So the second is `step-<n>.2`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from grpo_trainer.checkpoint_files import CheckpointFolder, sync_to_disk, write_atomically
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.final_model import make_readable

BASE = "base"
"""The model that the reference server was started with."""
NAMES = "names"
_STEP = re.compile(r"step-(\d+)(\.\d+)?")


def version_step(name: str) -> int:
    """The optimizer step whose policy went into a version; 0 for the base."""
    step = _STEP.fullmatch(name)
    return int(step[1]) if step else 0


class VersionFolder:
    """The folder `versions` of a run, as one attempt sees it. Only rank 0 writes through it."""

    def __init__(self, root: Path, attempt: int, checkpoints: CheckpointFolder) -> None:
        """`checkpoints` knows whether a newer attempt has begun, which stops this one from writing and deleting."""
        self.root = root
        self._attempt = attempt
        self._checkpoints = checkpoints

    def path(self, name: str) -> Path:
        """Where a version lies."""
        return self.root / name

    def partial(self, name: str) -> Path:
        """Where a version is written before it is published."""
        return self.root / f"{name}.attempt-{self._attempt}.partial"

    def begin(self, step: int) -> str:
        """Choose the name of the version of a step, and make an empty folder to write it into.

        Raises:
            Superseded: a newer attempt has begun.
        """
        self._checkpoints.check_claim()
        self.root.mkdir(parents=True, exist_ok=True)
        given = self._given()
        name, again = f"step-{step}", 1
        while name in given:
            again += 1
            name = f"step-{step}.{again}"
        shutil.rmtree(self.partial(name), ignore_errors=True)
        self.partial(name).mkdir()
        return name

    def publish(self, name: str) -> Path:
        """Turn what was written into a version: everything on disk, the name taken, one rename.

        Raises:
            Superseded: a newer attempt has begun; nothing is published.
        """
        partial = self.partial(name)
        make_readable(partial)
        for path in partial.iterdir():
            sync_to_disk(path)
        sync_to_disk(partial)
        self._checkpoints.check_claim()
        write_atomically(self.root / NAMES, "".join(f"{each}\n" for each in [*self._given(), name]))
        partial.rename(self.path(name))
        sync_to_disk(self.root)
        return self.path(name)

    def check(self, name: str) -> None:
        """Raise ConfigurationError where a version that is needed is not there."""
        if name != BASE and not self.path(name).is_dir():
            raise ConfigurationError(
                "checkpoint.volume",
                f"the reference's version {name}, in force at the checkpoint, is not in {self.root}: put it back, or "
                "remove the checkpoints to begin anew",
            )

    def prune(self, needed: Collection[str]) -> None:
        """Delete the versions that are not needed, and what was left half-written.

        Raises:
            Superseded: a newer attempt has begun; nothing is deleted.
        """
        self._checkpoints.check_claim()
        if not self.root.is_dir():
            return
        for path in self.root.iterdir():
            if path.is_dir() and path.name not in needed:
                shutil.rmtree(path, ignore_errors=True)

    def _given(self) -> list[str]:
        try:
            return (self.root / NAMES).read_text().split()
        except FileNotFoundError:
            return []
