"""The files of a local run, and going on with one."""

import json
from pathlib import Path

import pytest
from grpo_api.v1alpha1 import LastTermination, ProgressStatus, Status, TrainerStatus
from grpo_operator.local.resume import resume
from grpo_operator.local.run_files import RunFiles, RunFilesError, check_result, read_termination
from grpo_operator.plan import plan

from tests.unit.operator.world import NOW, later, make_job, observe

RAN = Status(
    phase="Failed",
    reason="Crashed",
    message="x: y # z",
    restarts=3,
    start_time=NOW,
    trainer=TrainerStatus(
        attempt=3,
        last_termination=LastTermination(attempt=3, cause="Crash", reason="Crashed", message="m", time=NOW),
    ),
    progress=ProgressStatus(step=4, checkpoint_step=4, kl=1e-6),
)


def test_files_lie_where_a_volume_would_have_them(tmp_path: Path):
    files = RunFiles.of(tmp_path, make_job())
    assert files.folder == tmp_path / "demo" / "uid-1"
    files.prepare(make_job())
    assert files.token.stat().st_mode & 0o777 == 0o600
    assert len(files.token.read_text()) >= 32
    assert json.loads(files.config.read_text())["metadata"]["name"] == "demo"


def test_the_token_stays_and_the_config_follows_the_job(tmp_path: Path):
    files = RunFiles.of(tmp_path, make_job())
    files.prepare(make_job())
    token = files.token.read_text()
    files.prepare(make_job(optimization__maxSteps=9))
    assert files.token.read_text() == token
    assert json.loads(files.config.read_text())["spec"]["optimization"]["maxSteps"] == 9


def test_the_status_reads_back_as_it_was_saved(tmp_path: Path):
    files = RunFiles.of(tmp_path, make_job())
    files.save(make_job(status=RAN))
    assert files.load_status() == RAN
    assert sorted(path.name for path in files.folder.iterdir()) == ["job.yaml"]


def test_a_termination_log_that_is_no_json_is_none(tmp_path: Path):
    log = tmp_path / "log"
    assert read_termination(log) is None
    log.write_text("Segmentation fault")
    assert read_termination(log) is None
    log.write_text('{"reason": "Crashed", "message": "m", "exitCode": 1}')
    found = read_termination(log)
    assert found is not None
    assert found.exit_code == 1


def test_resume_starts_the_next_attempt_with_counts_of_0(tmp_path: Path):
    RunFiles.of(tmp_path, make_job()).save(make_job(status=RAN))
    job, files = resume(make_job(failurePolicy__maxRestarts=0), tmp_path, "uid-1")
    assert files.folder == tmp_path / "demo" / "uid-1"
    assert job.metadata.uid == "uid-1"
    made = plan(job, observe(), later(10_000_000_000))
    assert made.attempt is not None
    assert made.attempt.number == 4
    assert (made.status.restarts, made.status.phase) == (0, "Starting")
    assert made.status.progress is not None
    assert made.status.progress.checkpoint_step == 4


def test_resume_takes_a_folder_too_and_refuses_what_is_no_run_of_the_job(tmp_path: Path):
    RunFiles.of(tmp_path, make_job()).save(make_job(status=RAN))
    job, _ = resume(make_job(), Path("elsewhere"), str(tmp_path / "demo" / "uid-1"))
    assert job.metadata.uid == "uid-1"
    with pytest.raises(RunFilesError, match="is not the folder of a local run"):
        resume(make_job(), tmp_path, "uid-2")
    other = tmp_path / "other" / "uid-3"
    other.mkdir(parents=True)
    with pytest.raises(RunFilesError, match="is no run of demo"):
        resume(make_job(), tmp_path, str(other))


def test_a_run_that_succeeded_is_not_resumed(tmp_path: Path):
    done = Status(phase="Succeeded", model_path="/m")
    RunFiles.of(tmp_path, make_job()).save(make_job(status=done))
    with pytest.raises(RunFilesError, match="has Succeeded; the model lies in /m"):
        resume(make_job(), tmp_path, "uid-1")


def test_the_result_file_is_tried_and_left_as_it_was(tmp_path: Path):
    new, old = tmp_path / "a" / "new.json", tmp_path / "old.json"
    old.write_text("before")
    check_result(new)
    check_result(old)
    assert not new.exists()
    assert old.read_text() == "before"
