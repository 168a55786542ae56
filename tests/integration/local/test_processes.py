"""How `grpo run` handles processes: real ones, with stand-ins for what they run (`standin/`)."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

from grpo_api import env
from grpo_operator.manifest import load

from tests.integration.local.runs import STANDIN, alive, grpo_run, wait_until, write_job


def result(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "result.json").read_text()))


def behaviour(**pods: str) -> str:
    return json.dumps({name.removeprefix("pod_").replace("_", "-"): words for name, words in pods.items()})


def test_a_job_runs_to_its_end_and_leaves_its_files(tmp_path: Path):
    job = write_job(tmp_path / "job.yaml")
    code = tmp_path / "code"
    code.mkdir()
    with grpo_run(tmp_path, job, "--reward-path", str(code)) as run:
        status, printed = run.end()
    assert status == 0, printed
    pods = run.started()
    assert sorted((pod["attempt"], pod["pod"]) for pod in pods) == [(0, 0), (0, 1)]
    assert all(pod["referenceReady"] for pod in pods), "the trainer started before the reference was ready"
    assert all(pod["pythonpath"].startswith(str(code)) for pod in pods)
    environment = pods[0]["environment"]
    assert environment[env.GRPO_OUTPUT_DIR] == str(run.folder)
    assert environment[env.PET_MASTER_ADDR] == "127.0.0.1"
    assert environment[env.PET_MASTER_PORT] == pods[1]["environment"][env.PET_MASTER_PORT]
    assert pods[0]["uid"] == run.folder.name
    assert not any(alive(pod["pid"]) for pod in pods)
    assert not alive(int((run.folder / "reference-pid").read_text()))
    ended = result(tmp_path)
    assert (ended["phase"], ended["modelPath"], ended["restarts"]) == ("Succeeded", str(run.folder / "final"), 0)
    saved = load(str(run.folder / "job.yaml")).data["status"]
    assert (saved["phase"], saved["progress"]["steps"]) == ("Succeeded", "2/2")
    assert (run.folder / "run" / "token").stat().st_mode & 0o777 == 0o600
    story = [line.split()[1] for line in printed.splitlines() if line[:2].isdigit()]
    assert story[:4] == ["Accepted", "ReferenceStarting", "ReferenceReady", "AttemptStarted"]
    assert story[-2:] == ["Succeeded", "ReferenceRemoved"]


def test_a_crash_ends_the_gang_and_the_next_attempt_succeeds(tmp_path: Path):
    job = write_job(tmp_path / "job.yaml")
    with grpo_run(tmp_path, job, STANDIN_TRAINER=behaviour(pod_0_0="wait", pod_0_1="exit 139")) as run:
        status, printed = run.end()
    assert status == 0, printed
    assert (run.folder / "saved-0-0").exists(), "the other pod was not asked to end"
    assert sorted((pod["attempt"], pod["pod"]) for pod in run.started()) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert (result(tmp_path)["phase"], result(tmp_path)["restarts"]) == ("Succeeded", 1)
    ports = {(pod["attempt"], pod["environment"][env.PET_MASTER_PORT]) for pod in run.started()}
    assert len(ports) == 2


def test_a_permanent_exit_code_fails_the_job_with_the_trainers_reason(tmp_path: Path):
    job = write_job(tmp_path / "job.yaml")
    with grpo_run(tmp_path, job, STANDIN_TRAINER=behaviour(pod_0_0="wait", pod_0_1="exit 65")) as run:
        status, printed = run.end()
    assert status == 1
    assert (result(tmp_path)["reason"], result(tmp_path)["message"]) == ("RewardError", "rank 1: ValueError: boom")
    assert "Failed: rank 1: ValueError: boom" in printed
    assert not any(alive(pod["pid"]) for pod in run.started())


def test_a_reference_that_cannot_start_fails_the_job(tmp_path: Path):
    job = write_job(tmp_path / "job.yaml")
    with grpo_run(tmp_path, job, STANDIN_REFERENCE="exit 64") as run:
        status, printed = run.end()
    assert status == 1
    assert result(tmp_path)["reason"] == "ReferenceFailed"
    assert "the model cannot be read" in printed
    assert not (run.folder / "started").exists()


def test_ctrl_c_lets_the_trainer_save_and_ends_everything_and_resume_goes_on(tmp_path: Path):
    job = write_job(tmp_path / "job.yaml")
    with grpo_run(tmp_path, job, STANDIN_TRAINER=behaviour(pod_0_0="wait", pod_0_1="wait")) as run:
        pods = wait_until(lambda: len(run.started()) == 2 and run.started(), "start of both pods")
        run.signal(signal.SIGINT)
        status, printed = run.end()
    assert status == 128 + signal.SIGINT
    assert {path.name for path in run.folder.glob("saved-*")} == {"saved-0-0", "saved-0-1"}
    assert not any(alive(pod["pid"]) for pod in pods)
    assert not alive(int((run.folder / "reference-pid").read_text()))
    uid = run.folder.name
    assert f"--resume {uid}" in printed

    with grpo_run(tmp_path, job, "--resume", uid) as again:
        status, printed = again.end()
    assert status == 0, printed
    assert again.folder.name == uid
    assert {pod["attempt"] for pod in again.started()} == {0, 1}
    assert result(tmp_path)["restarts"] == 0
    with grpo_run(tmp_path, job, "--resume", uid) as over:
        status, printed = over.end()
    assert status == 1
    assert "has Succeeded" in printed


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path):
    job = write_job(tmp_path / "job.yaml", trainer={"replicas": 1, "terminationGracePeriodSeconds": 3600})
    with grpo_run(tmp_path, job, STANDIN_TRAINER=behaviour(pod_0_0="stubborn")) as run:
        (pod,) = wait_until(run.started, "start of the pod")
        run.signal(signal.SIGINT)
        assert any("Ctrl-C again ends it at once" in line for line in iter(run.process.stdout.readline, ""))
        assert alive(pod["pid"])
        run.signal(signal.SIGINT)
        status, _ = run.end()
    assert status == 128 + signal.SIGINT
    assert not alive(pod["pid"])


def test_a_trainer_that_does_not_heed_sigterm_is_killed_after_its_grace_period(tmp_path: Path):
    job = write_job(tmp_path / "job.yaml", trainer={"replicas": 2, "terminationGracePeriodSeconds": 1})
    with grpo_run(tmp_path, job, STANDIN_TRAINER=behaviour(pod_0_0="stubborn", pod_0_1="exit 1")) as run:
        status, printed = run.end()
    assert status == 0, printed
    assert result(tmp_path)["restarts"] == 1


def test_nothing_outlives_grpo_itself(tmp_path: Path):
    job = write_job(tmp_path / "job.yaml")
    with grpo_run(tmp_path, job, STANDIN_TRAINER=behaviour(pod_0_0="wait", pod_0_1="wait")) as run:
        pods = wait_until(lambda: len(run.started()) == 2 and run.started(), "start of both pods")
        reference = int((run.folder / "reference-pid").read_text())
        run.signal(signal.SIGKILL)
        run.end()
    for pid in (*(pod["pid"] for pod in pods), reference):
        wait_until(lambda pid=pid: not alive(pid), f"end of process {pid}")
    assert {path.name for path in run.folder.glob("saved-*")} == {"saved-0-0", "saved-0-1"}


def test_on_a_terminal_there_is_a_live_table(tmp_path: Path):
    job = write_job(tmp_path / "job.yaml", trainer={"replicas": 1})
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*STANDIN, "run", str(job), "--output", str(tmp_path / "runs")],
        env={**os.environ, "TERM": "xterm", "STANDIN_TRAINER": behaviour(pod_0_0="wait"), "COLUMNS": "100"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while b"reward" not in seen:
            seen += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        while chunk := _read(ours):
            seen += chunk
        assert process.wait(timeout=60) == 128 + signal.SIGINT
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = seen.decode(errors="replace")
    assert "1/2  training" in text
    assert "0.2500" in text
    assert "\x1b[2K" in text, "no line was redrawn"
    assert "\x1b[?25h" in text, "the cursor was not shown again"


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side has closed
        return b""
