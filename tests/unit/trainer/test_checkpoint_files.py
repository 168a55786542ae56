"""Only complete checkpoints count, old ones go, and an older attempt cannot write any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from grpo_trainer.checkpoint_files import MANIFEST, CheckpointFolder, read_manifest
from grpo_trainer.interruptions import Superseded


def save(folder: CheckpointFolder, step: int, content: str = "weights") -> Path:
    partial = folder.begin(step)
    (partial / "deepspeed").mkdir()
    (partial / "deepspeed/shard-0").write_text(content)
    return folder.publish(step, world_size=2, state={"step": step})


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    made = CheckpointFolder(tmp_path / "checkpoints", attempt=1)
    made.claim()
    return made


def steps(folder: CheckpointFolder) -> list[int]:
    return [saved.manifest.step for saved in folder.complete()]


def test_a_published_checkpoint_is_complete(folder: CheckpointFolder) -> None:
    path = save(folder, 10)
    assert path.name == "step-10"
    manifest = read_manifest(path)
    assert manifest is not None
    assert (manifest.step, manifest.attempt, manifest.world_size, manifest.state) == (10, 1, 2, {"step": 10})
    assert manifest.files == {"deepspeed/shard-0": len("weights")}
    assert [p.name for p in folder.root.iterdir() if "partial" in p.name or p.name.endswith(".new")] == []


def test_what_is_not_published_does_not_count(folder: CheckpointFolder) -> None:
    partial = folder.begin(10)
    (partial / "shard").write_text("half")
    assert steps(folder) == []


@pytest.mark.parametrize("harm", ["missing", "truncated", "no manifest", "bad manifest"])
def test_a_harmed_checkpoint_does_not_count(folder: CheckpointFolder, harm: str) -> None:
    save(folder, 10)
    path = save(folder, 20)
    if harm == "missing":
        (path / "deepspeed/shard-0").unlink()
    elif harm == "truncated":
        (path / "deepspeed/shard-0").write_text("wei")
    elif harm == "no manifest":
        (path / MANIFEST).unlink()
    else:
        (path / MANIFEST).write_text(json.dumps({"step": 20})[:-2])
    assert steps(folder) == [10]


def test_steps_are_ordered_as_numbers(folder: CheckpointFolder) -> None:
    for step in (100, 20, 3):
        save(folder, step)
    assert steps(folder) == [3, 20, 100]


def test_the_newest_are_kept(folder: CheckpointFolder) -> None:
    for step in (10, 20, 30):
        save(folder, step)
    folder.prune(keep=2)
    assert steps(folder) == [20, 30]
    assert not (folder.root / "step-10").exists()
    folder.prune(keep=5)
    assert steps(folder) == [20, 30]


def test_a_prune_that_was_killed_is_finished_by_the_next_attempt(folder: CheckpointFolder) -> None:
    for step in (10, 20, 30):
        save(folder, step)
    (folder.root / "step-10" / MANIFEST).unlink()
    (folder.root / "step-40").mkdir()  # newer than the newest complete one: not what prune leaves
    CheckpointFolder(folder.root, attempt=2).claim()
    assert sorted(path.name for path in folder.root.iterdir()) == ["attempt", "step-20", "step-30", "step-40"]
    assert steps(folder) == [20, 30]


def test_without_a_complete_checkpoint_nothing_is_removed(folder: CheckpointFolder) -> None:
    (save(folder, 10) / MANIFEST).unlink()
    CheckpointFolder(folder.root, attempt=2).claim()
    assert (folder.root / "step-10").is_dir()


def test_an_older_attempt_cannot_write_any_more(folder: CheckpointFolder) -> None:
    save(folder, 10)
    partial = folder.begin(20)
    (partial / "shard").write_text("old")

    newer = CheckpointFolder(folder.root, attempt=2)
    newer.claim()
    for write in (
        lambda: folder.publish(20, world_size=2, state={}),
        lambda: folder.begin(30),
        folder.claim,
    ):
        with pytest.raises(Superseded, match="attempt 2 of this run has begun"):
            write()
    assert steps(folder) == [10]
    assert not partial.exists(), "what an older attempt left half-written is removed"
    save(newer, 20)
    assert steps(newer) == [10, 20]


def test_the_fence_is_looked_at_again_after_everything_is_written(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer attempt begins while this one writes its manifest."""
    from grpo_trainer import checkpoint_files

    write = checkpoint_files.write_atomically

    def late(path: Path, text: str) -> None:
        write(path, text)
        if path.name == MANIFEST:
            write(folder.root / "attempt", "2\n")

    folder.begin(20)
    monkeypatch.setattr(checkpoint_files, "write_atomically", late)
    with pytest.raises(Superseded):
        folder.publish(20, world_size=2, state={})
    assert steps(folder) == []


def test_the_same_attempt_may_begin_again(folder: CheckpointFolder) -> None:
    save(folder, 10)
    again = CheckpointFolder(folder.root, attempt=1)
    again.claim()
    assert steps(again) == [10]


def test_a_step_written_again_replaces_the_old_one(folder: CheckpointFolder) -> None:
    save(folder, 10, "old")
    newer = CheckpointFolder(folder.root, attempt=2)
    newer.claim()
    path = save(newer, 10, "newer")
    assert (path / "deepspeed/shard-0").read_text() == "newer"
    assert sorted(p.name for p in folder.root.iterdir()) == ["attempt", "step-10"]
