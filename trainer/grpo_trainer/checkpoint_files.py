"""The files of checkpoints: which are complete, which attempt may write, which may go.

checkpoints/attempt                       the newest attempt that has begun: older ones may not write any more
checkpoints/step-<n>/manifest.json        written last; a folder without it is no checkpoint
checkpoints/step-<n>.attempt-<a>.partial  being written; renamed to step-<n> in one piece when all is there
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from grpo_trainer.interruptions import Superseded

ATTEMPT = "attempt"
MANIFEST = "manifest.json"
_STEP = re.compile(r"step-(\d+)")
_PARTIAL = re.compile(r"step-\d+\.attempt-(\d+)\.(partial|old)")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a complete checkpoint says of itself."""

    step: int
    attempt: int
    world_size: int
    state: dict[str, Any]
    """Position of the loop."""
    files: dict[str, int] = field(default_factory=dict)
    """Path below the checkpoint → size in bytes."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A complete checkpoint."""

    folder: Path
    manifest: Manifest


class CheckpointFolder:
    """The folder `checkpoints` of a run, as one attempt sees it. Only rank 0 writes through it."""

    def __init__(self, root: Path, attempt: int) -> None:
        self.root = root
        self._attempt = attempt

    def claim(self) -> None:
        """Say that this attempt has begun, which stops older ones, and remove what they left half-written.

        Raises:
            Superseded: a newer attempt has begun already.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self.check_claim()
        write_atomically(self.root / ATTEMPT, f"{self._attempt}\n")
        for path in self.root.iterdir():
            partial = _PARTIAL.fullmatch(path.name)
            if partial and int(partial[1]) <= self._attempt:
                shutil.rmtree(path, ignore_errors=True)
        self._remove_half_deleted()

    def check_claim(self) -> None:
        """Raise Superseded where a newer attempt has begun."""
        try:
            newest = int((self.root / ATTEMPT).read_text())
        except FileNotFoundError:
            return
        if newest > self._attempt:
            raise Superseded(
                f"attempt {newest} of this run has begun: attempt {self._attempt} must not write to {self.root}"
            )

    def begin(self, step: int) -> Path:
        """Make an empty folder to write the checkpoint of a step into."""
        self.check_claim()
        folder = self.partial(step)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def partial(self, step: int) -> Path:
        """Where the checkpoint of a step is written before it is published."""
        return self.root / f"step-{step}.attempt-{self._attempt}.partial"

    def publish(self, step: int, *, world_size: int, state: dict[str, Any]) -> Path:
        """Turn what was written into a complete checkpoint: everything on disk, manifest last, one rename.

        Raises:
            Superseded: a newer attempt has begun; nothing is published.
        """
        self.check_claim()
        folder = self.partial(step)
        files = {str(path.relative_to(folder)): path.stat().st_size for path in _files(folder)}
        for path in _files(folder):
            sync_to_disk(path)
        manifest = Manifest(step, self._attempt, world_size, state, files)
        write_atomically(folder / MANIFEST, json.dumps(asdict(manifest), indent=1) + "\n")
        self.check_claim()
        final = self.root / f"step-{step}"
        if final.exists():  # by an earlier attempt, or half-deleted
            old = self.root / f"step-{step}.attempt-{self._attempt}.old"
            final.rename(old)
            folder.rename(final)
            shutil.rmtree(old, ignore_errors=True)
        else:
            folder.rename(final)
        sync_to_disk(self.root)
        return final

    def complete(self) -> list[Saved]:
        """All complete checkpoints, oldest step first."""
        found = []
        for path in self.root.glob("step-*"):
            if _STEP.fullmatch(path.name) and (manifest := read_manifest(path)) is not None:
                found.append(Saved(path, manifest))
        return sorted(found, key=lambda saved: saved.manifest.step)

    def prune(self, keep: int) -> None:
        """Keep the newest complete checkpoints. The manifest goes first, so that a half-deleted one does not count."""
        for saved in self.complete()[:-keep]:
            (saved.folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(saved.folder, ignore_errors=True)

    def _remove_half_deleted(self) -> None:
        """A `prune` that was killed leaves folders without manifest, below the newest complete checkpoint."""
        complete = self.complete()
        if not complete:
            return
        for path in self.root.glob("step-*"):
            step = _STEP.fullmatch(path.name)
            if step and int(step[1]) < complete[-1].manifest.step and not (path / MANIFEST).exists():
                shutil.rmtree(path, ignore_errors=True)


def read_manifest(folder: Path) -> Manifest | None:
    """Read a checkpoint's manifest; None where it is not complete: none there, a file missing or of another size."""
    try:
        manifest = Manifest(**json.loads((folder / MANIFEST).read_text()))
        whole = all((folder / name).stat().st_size == size for name, size in manifest.files.items())
    except (OSError, ValueError, TypeError):
        return None
    return manifest if whole else None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or the new one, also after a crash."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    sync_to_disk(new)
    new.replace(path)
    sync_to_disk(path.parent)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def sync_to_disk(path: Path) -> None:
    """Have the kernel write a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot sync folders
            os.fsync(handle)
    finally:
        os.close(handle)
