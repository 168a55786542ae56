"""Rank processes, real ones: that all end when one does, that a signal starts the grace period, that none is left."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from grpo_api.rank_processes import RankEnd, RankProcesses

WAIT = 60.0
HANG = "import time; time.sleep(600)"


def run(*programs: str, settle: float = WAIT, any_end: bool = True) -> RankProcesses:
    ranks = RankProcesses(settle_seconds=settle, ends_all=lambda end: any_end or end.code != 0)
    ranks.start(
        [sys.executable, "-c", "import os, sys; exec(os.environ['PROGRAM'])"],
        {rank: {**os.environ, "PROGRAM": program} for rank, program in enumerate(programs)},
    )
    return ranks


def test_signals_are_128_plus_n_and_told_by_name() -> None:
    killed = RankEnd(0, -signal.SIGKILL)
    assert (killed.exit_code, killed.describe()) == (137, "was ended by SIGKILL (out of memory?)")
    assert RankEnd(0, -signal.SIGKILL, by_us=True).describe() == "was ended by SIGKILL"
    assert (RankEnd(0, 65).exit_code, RankEnd(0, 65).describe()) == (65, "ended with exit code 65")


@pytest.mark.parametrize("code", [0, 3])
def test_one_ranks_end_ends_all(code: int) -> None:
    ends = run(HANG, f"sys.exit({code})", HANG, settle=0.1).wait(WAIT)
    assert ends[0] == RankEnd(1, code)
    assert sorted(end.rank for end in ends[1:]) == [0, 2]
    assert all(end.by_us and end.code == -signal.SIGKILL for end in ends[1:])


def test_an_end_that_ends_nobody_is_waited_out() -> None:
    ends = run("import time; time.sleep(1)", "sys.exit(0)", settle=0.01, any_end=False).wait(WAIT)
    assert ends == [RankEnd(1, 0), RankEnd(0, 0)]


def test_a_signal_reaches_the_ranks_that_are_meant() -> None:
    ranks = run("import signal; signal.signal(15, lambda *_: sys.exit(0)); " + HANG, HANG, settle=0.1)
    _until_caught(ranks.processes[0].pid)
    assert not ranks.signalled
    ranks.signal(signal.SIGTERM, [0])
    assert ranks.wait(WAIT) == [RankEnd(0, 0), RankEnd(1, -signal.SIGKILL, by_us=True)]
    assert ranks.signalled


def test_after_the_grace_period_all_are_killed() -> None:
    ranks = run("import signal; signal.signal(15, signal.SIG_IGN); " + HANG, HANG)
    threading.Timer(0.1, ranks.signal, [signal.SIGTERM, [0]]).start()
    assert {end.rank for end in ranks.wait(0.1)} == {0, 1}


def test_what_a_rank_left_behind_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = f"import subprocess; open({str(note)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    assert run(child).wait(WAIT) == [RankEnd(0, 0)]
    _until_gone(int(note.read_text()))


def test_ranks_die_with_the_launcher(tmp_path: Path) -> None:
    program = f"""
import sys
from grpo_api.rank_processes import RankProcesses
ranks = RankProcesses(settle_seconds=600, ends_all=lambda end: True)
ranks.start([sys.executable, "-c", {HANG!r}], {{0: {{}}, 1: {{}}}})
print(*(process.pid for process in ranks.processes.values()), flush=True)
ranks.wait(600)
"""
    launcher = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert launcher.stdout is not None
        pids = [int(pid) for pid in launcher.stdout.readline().split()]
    finally:
        launcher.kill()
        launcher.wait()
    assert len(pids) == 2
    for pid in pids:
        _until_gone(pid)


def _until_caught(pid: int) -> None:
    """Until the process has a handler for SIGTERM."""
    deadline = time.monotonic() + WAIT
    while True:
        caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line[:6] == "SigCgt")
        if int(caught.split()[1], 16) & (1 << (signal.SIGTERM - 1)):
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _until_gone(pid: int) -> None:
    deadline = time.monotonic() + WAIT
    status = Path(f"/proc/{pid}/stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.05)
