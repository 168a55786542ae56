"""The launcher: which end explains the others, and what the ranks are told."""

import os
import signal
import sys

import pytest
from grpo_api.progress import Termination
from grpo_api.rank_processes import RankEnd
from grpo_refserver.settings import ConfigurationError
from grpo_refserver.tensor_parallel.launch import cause, environment, explain, make_processes
from grpo_refserver.tensor_parallel.ranks import Rank


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
    assert cause(ends, signalled=False).rank == rank


def test_after_a_signal_a_rank_that_ended_well_explains_nothing():
    assert cause([RankEnd(1, 0), RankEnd(0, -9, by_us=True)], signalled=True).rank == 0
    assert cause([RankEnd(1, 0), RankEnd(0, 1)], signalled=True).rank == 0


FIRST = """
def drain(*_):
    open(os.environ["DRAINED"], "w")
    time.sleep(1)  # far beyond the time to settle
    sys.exit()
signal.signal(signal.SIGTERM, drain)
open(os.environ["READY"], "w")
"""
FOLLOWS = """
while not os.path.exists(os.environ["DRAINED"]):
    time.sleep(0.01)
"""
HANG = "time.sleep(600)"


def start_ranks(tmp_path, *programs):
    processes = make_processes(settle_seconds=0.01)
    files = {"DRAINED": str(tmp_path / "drained"), "READY": str(tmp_path / "ready")}
    processes.start(
        [sys.executable, "-c", "import os, signal, sys, time; exec(os.environ['PROGRAM'])"],
        {rank: {**os.environ, **files, "PROGRAM": program} for rank, program in enumerate(programs)},
    )
    return processes


def test_a_drain_waits_for_rank_0(tmp_path, until):
    processes = start_ranks(tmp_path, FIRST + HANG, FOLLOWS)
    until((tmp_path / "ready").exists)
    processes.signal(signal.SIGTERM, [0])
    assert processes.wait(60) == [RankEnd(1, 0), RankEnd(0, 0)]


def test_after_rank_0_and_without_a_signal_nobody_goes_on(tmp_path, until):
    processes = start_ranks(tmp_path, FIRST + HANG, HANG)
    until((tmp_path / "ready").exists)
    processes.signal(signal.SIGTERM, [0])
    assert processes.wait(60) == [RankEnd(0, 0), RankEnd(1, -9, by_us=True)]
    assert start_ranks(tmp_path, HANG, "").wait(60) == [RankEnd(1, 0), RankEnd(0, -9, by_us=True)]


def test_the_reason_names_the_rank():
    killed = explain(RankEnd(1, -signal.SIGKILL), None)
    assert (killed.message, killed.exit_code) == ("rank 1 was ended by SIGKILL (out of memory?)", 137)
    assert explain(RankEnd(1, 0), None).exit_code == 1
    told = Termination(reason="ConfigurationError", message="no such model", exit_code=64)
    assert explain(RankEnd(0, 64), told).message == "rank 0: no such model"
    assert explain(RankEnd(1, -9), told).exit_code == 137


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
