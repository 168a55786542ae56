"""The launcher: which end explains the others, and that all end when one does. Real processes, no model."""

import os
import signal
import sys
import threading
import time

import pytest
from grpo_api.progress import Termination
from grpo_refserver.settings import ConfigurationError
from grpo_refserver.tensor_parallel.launch import Launcher, RankEnd, cause, environment, explain
from grpo_refserver.tensor_parallel.ranks import Rank

WAIT = 60.0
HANG = "import time; time.sleep(600)"


@pytest.mark.parametrize(
    ("ends", "rank"),
    [
        ([RankEnd(0, 0), RankEnd(1, 75)], 0),
        ([RankEnd(1, 0), RankEnd(0, 0)], 0),
        ([RankEnd(0, 0), RankEnd(1, -9, by_us=True)], 0),
        ([RankEnd(1, -9), RankEnd(0, 1)], 1),
        ([RankEnd(0, 1), RankEnd(1, -9)], 1),
        ([RankEnd(1, 75), RankEnd(0, 1)], 0),
        ([RankEnd(1, 64), RankEnd(0, 64)], 1),
        ([RankEnd(1, 1), RankEnd(0, 64)], 0),
        ([RankEnd(1, 1), RankEnd(0, 1)], 1),
        ([RankEnd(1, 1), RankEnd(0, -9, by_us=True)], 1),
        ([RankEnd(1, 0), RankEnd(0, -9, by_us=True)], 1),
    ],
)
def test_the_cause(ends, rank):
    assert cause(ends).rank == rank


def test_the_reason_names_the_rank():
    killed = explain(RankEnd(1, -signal.SIGKILL), None)
    assert (killed.message, killed.exit_code) == ("rank 1 was ended by SIGKILL (out of memory?)", 137)
    assert explain(RankEnd(1, 0), None).exit_code == 1
    told = Termination(reason="ConfigurationError", message="no such model", exit_code=64)
    assert explain(RankEnd(0, 64), told).message == "rank 0: no such model"
    assert explain(RankEnd(1, -9), told).exit_code == 137


def run(*programs: str, grace: float = WAIT, settle: float = WAIT) -> Launcher:
    launcher = Launcher(grace_seconds=grace, settle_seconds=settle)
    wrapped = "import os, sys; exec(os.environ['PROGRAM'])"
    launcher.start(
        [sys.executable, "-c", wrapped],
        {rank: {**os.environ, "PROGRAM": program} for rank, program in enumerate(programs)},
    )
    return launcher


@pytest.mark.parametrize("code", [0, 3])
def test_one_ranks_end_ends_all(code):
    ends = run(HANG, f"sys.exit({code})", HANG, settle=0.1).wait()
    assert ends[0] == RankEnd(1, code)
    assert sorted(end.rank for end in ends[1:]) == [0, 2]
    assert all(end.by_us and end.code == -signal.SIGKILL for end in ends[1:])


def test_a_signal_reaches_rank_0_alone():
    drain = "import signal; signal.signal(15, lambda *_: sys.exit(0)); print(1, flush=True); " + HANG
    launcher = run(drain, HANG, settle=0.1)
    pid = launcher._processes[0].pid
    deadline = time.monotonic() + WAIT
    while not _handles_sigterm(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    launcher.signal(signal.SIGTERM)
    ends = launcher.wait()
    assert ends == [RankEnd(0, 0), RankEnd(1, -signal.SIGKILL, by_us=True)]
    assert cause(ends).exit_code == 0


def test_after_the_grace_period_all_are_killed():
    ignore = "import signal; signal.signal(15, signal.SIG_IGN); " + HANG
    launcher = run(ignore, HANG, grace=0.1)
    threading.Timer(0.1, launcher.signal, [signal.SIGTERM]).start()
    ends = launcher.wait()
    assert {end.rank for end in ends} == {0, 1}
    assert cause(ends).exit_code != 0


def test_the_ranks_environment_is_torchruns(tmp_path):
    first, second = Rank.all(2)
    own = {"PATH": "/bin", "OMP_NUM_THREADS": "3", "GRPO_TERMINATION_LOG": "/dev/termination-log"}
    made = environment(own, second, tmp_path / "reason", "cpu")
    assert Rank.of(made, 2) == second
    assert Rank.of(environment(own, first, tmp_path / "reason", "auto"), 2) == first
    assert (made["LOCAL_RANK"], made["PATH"], made["OMP_NUM_THREADS"]) == ("1", "/bin", "3")
    assert made["GRPO_TERMINATION_LOG"] == str(tmp_path / "reason")
    assert made["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in environment(own, second, tmp_path / "reason", "auto")


def test_a_launcher_that_started_another_number_is_refused():
    environ = Rank(0, 4, "localhost", 1).to_environ()
    with pytest.raises(ConfigurationError, match=r"size 2 needs.*WORLD_SIZE=4.*--nproc-per-node 2"):
        Rank.of(environ, 2)
    with pytest.raises(ConfigurationError, match=r"WORLD_SIZE=4, 2 of them here"):
        Rank.of(environ | {"LOCAL_WORLD_SIZE": "2"}, 4)
    with pytest.raises(ConfigurationError, match="must be numbers"):
        Rank.of(environ | {"RANK": "first"}, 4)
    assert Rank.of({"RANK": "0"}, 2) is None


def _handles_sigterm(pid: int) -> bool:
    with open(f"/proc/{pid}/status") as status:
        caught = next(line for line in status if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & (1 << (signal.SIGTERM - 1)))
