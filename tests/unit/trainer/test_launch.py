"""The plan of a pod's ranks, and the reason that a pod ends with."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from grpo_api import env
from grpo_api.progress import Termination
from grpo_api.rank_processes import RankEnd
from grpo_api.termination import read_termination
from grpo_trainer import launch
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.launch import explain, plan_ranks

from tests.unit.trainer.specs import minimal


def config(folder: Path, **groups: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({"metadata": {"name": "job"}, "spec": minimal(**groups)}))
    return str(path)


def test_ranks_of_the_second_pod(tmp_path: Path) -> None:
    variables = {
        env.GRPO_CONFIG: config(tmp_path, trainer={"replicas": 2, "processesPerPod": 4}),
        env.PET_NNODES: "2",
        env.PET_NPROC_PER_NODE: "4",
        env.PET_NODE_RANK: "1",
        env.PET_MASTER_ADDR: "job-trainer-0-0.job-trainer",
        env.PET_MASTER_PORT: "29501",
    }
    ranks, grace = plan_ranks(variables)
    assert [rank.rank for rank in ranks] == [4, 5, 6, 7]
    assert [rank.local_rank for rank in ranks] == [0, 1, 2, 3]
    assert {(rank.world_size, rank.local_world_size, rank.master_addr, rank.master_port) for rank in ranks} == {
        (8, 4, "job-trainer-0-0.job-trainer", 29501)
    }
    assert grace == 115


def test_one_process_needs_no_variable() -> None:
    (rank,), _ = plan_ranks({})
    assert (rank.rank, rank.world_size, rank.master_addr) == (0, 1, "127.0.0.1")


@pytest.mark.parametrize(
    ("variables", "field"),
    [
        ({env.PET_NNODES: "2"}, env.PET_MASTER_ADDR),
        ({env.PET_NNODES: "two"}, env.PET_NNODES),
        ({env.PET_NNODES: "2", env.PET_NODE_RANK: "2", env.PET_MASTER_ADDR: "a"}, env.PET_NODE_RANK),
    ],
)
def test_bad_variables_are_named(variables: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{field}: "):
        plan_ranks(variables)


def test_another_number_of_ranks_than_the_specs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "termination"
    monkeypatch.setenv(env.GRPO_CONFIG, config(tmp_path, trainer={"replicas": 2}))
    monkeypatch.setenv(env.PET_NNODES, "3")
    monkeypatch.setenv(env.PET_MASTER_ADDR, "localhost")
    monkeypatch.setenv(env.GRPO_TERMINATION_LOG, str(log))
    assert launch.main([]) == 64
    told = read_termination(log)
    assert told is not None
    assert (told.reason, told.exit_code) == ("ConfigurationError", 64)
    assert "3 ranks were started" in told.message


TOLD = Termination(reason="RewardError", message="reward function f: broke", rank=1, exit_code=65, step=3)


def test_the_ranks_own_reason_is_kept() -> None:
    assert explain(RankEnd(1, 65), TOLD, terminated=False) == TOLD


@pytest.mark.parametrize(
    ("end", "told", "exit_code", "words"),
    [
        (RankEnd(1, -signal.SIGKILL), None, 137, "SIGKILL (out of memory?)"),
        (RankEnd(1, -signal.SIGSEGV), None, 139, "SIGSEGV"),
        (RankEnd(1, -signal.SIGKILL), TOLD, 137, "SIGKILL"),  # told before, but another end
        (RankEnd(1, 7), None, 7, "exit code 7"),
    ],
)
def test_silent_ends_are_described(end: RankEnd, told: Termination | None, exit_code: int, words: str) -> None:
    termination = explain(end, told, terminated=False)
    assert (termination.reason, termination.exit_code, termination.rank) == ("Crashed", exit_code, 1)
    assert words in termination.message


@pytest.mark.parametrize("end", [RankEnd(0, -signal.SIGTERM), RankEnd(0, -signal.SIGKILL, by_us=True)])
def test_ends_after_sigterm_can_be_retried(end: RankEnd) -> None:
    assert explain(end, None, terminated=True).exit_code == 75
