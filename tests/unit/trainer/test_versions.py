"""The folder of the reference's versions: whole or not there, names given once, nothing in use deleted."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from grpo_trainer.checkpoint_files import CheckpointFolder
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.interruptions import Superseded
from grpo_trainer.versions import BASE, VersionFolder, version_step


def folder(run: Path, attempt: int = 0) -> VersionFolder:
    checkpoints = CheckpointFolder(run / "checkpoints", attempt)
    checkpoints.claim()
    return VersionFolder(run / "versions", attempt, checkpoints)


def write(versions: VersionFolder, step: int, text: str = "weights") -> str:
    name = versions.begin(step)
    fill(versions.partial(name), text)
    versions.publish(name)
    return name


def fill(partial: Path, text: str) -> None:
    (partial / "model.safetensors").write_text(text)
    (partial / "model.safetensors").chmod(0o600)


def there(run: Path) -> set[str]:
    return {path.name for path in (run / "versions").iterdir() if path.is_dir()}


def test_a_version_appears_in_one_piece_and_other_users_may_read_it(tmp_path: Path) -> None:
    versions = folder(tmp_path)
    name = versions.begin(4)
    assert name == "step-4"
    assert not versions.path(name).exists()
    fill(versions.partial(name), "weights")
    assert not versions.path(name).exists()
    published = versions.publish(name)
    assert published == tmp_path / "versions/step-4"
    assert (published / "model.safetensors").read_text() == "weights"
    assert stat.S_IMODE((published / "model.safetensors").stat().st_mode) == 0o644
    assert stat.S_IMODE(published.stat().st_mode) & 0o555 == 0o555
    assert there(tmp_path) == {"step-4"}
    versions.check(name)


def test_what_a_crash_left_is_no_version_and_the_step_can_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = folder(tmp_path)
    name = versions.begin(4)
    fill(versions.partial(name), "half")

    def crash(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            versions.publish(name)
    assert not versions.path(name).exists(), "killed between write and rename"

    resumed = folder(tmp_path, attempt=1)
    with pytest.raises(ConfigurationError, match=r"step-4, in force at the checkpoint, is not in "):
        resumed.check(name)
    resumed.prune({BASE})
    assert there(tmp_path) == set()
    again = write(resumed, 4, "whole")
    assert (resumed.path(again) / "model.safetensors").read_text() == "whole"


def test_a_name_is_never_given_twice(tmp_path: Path) -> None:
    """A server that holds the first step-4 must not take the second for it."""
    first = folder(tmp_path)
    assert write(first, 4) == "step-4"
    resumed = folder(tmp_path, attempt=1)
    resumed.prune({BASE})
    assert there(tmp_path) == set()
    names = [write(resumed, 4), write(folder(tmp_path, attempt=2), 4), write(resumed_again(tmp_path), 40)]
    assert names == ["step-4.2", "step-4.3", "step-40"]
    assert [version_step(name) for name in [BASE, *names]] == [0, 4, 4, 40]


def resumed_again(run: Path) -> VersionFolder:
    """Under a scheduler that does not count attempts, all have the same number."""
    return folder(run, attempt=2)


def test_only_what_nobody_needs_is_deleted(tmp_path: Path) -> None:
    versions = folder(tmp_path)
    for step in (2, 4, 6, 8):
        write(versions, step)
    versions.partial(versions.begin(10))
    versions.prune({"step-8", "step-4", BASE})
    assert there(tmp_path) == {"step-4", "step-8"}
    versions.prune({"step-8", "step-4"})
    assert there(tmp_path) == {"step-4", "step-8"}


def test_an_older_attempt_neither_writes_nor_deletes(tmp_path: Path) -> None:
    older = folder(tmp_path)
    write(older, 2)
    begun = older.begin(4)
    newer = folder(tmp_path, attempt=1)
    write(newer, 4)
    with pytest.raises(Superseded):
        older.publish(begun)
    with pytest.raises(Superseded):
        older.begin(6)
    with pytest.raises(Superseded):
        older.prune(set())
    assert {"step-2", "step-4"} <= there(tmp_path)


def test_the_base_is_always_there(tmp_path: Path) -> None:
    versions = folder(tmp_path)
    versions.check(BASE)
    versions.prune({BASE})
