"""A fault of one rank ends all ranks at once, with the exit code and the reason of the cause."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.trainer.jobs import Workspace, run, start
from tests.server_process import free_port

pytestmark = pytest.mark.timeout(1200)


def test_a_reward_exception_on_one_rank_ends_all_with_its_message(workspace: Workspace, tmp_path: Path) -> None:
    spec = workspace.spec(rewards={"functions": [{"function": "lettercount:broken_on_rank_1"}]})
    ended = run(spec, tmp_path / "run", workspace)
    assert ended.code == 65, ended.output[-3000:]
    assert ended.termination is not None
    assert (ended.termination.reason, ended.termination.rank) == ("RewardError", 1)
    assert "no verdict on such a completion" in ended.termination.message
    # No rank waited for a time-out, or had to be killed: the first learned of it and ended with the same code.
    assert "waiting" not in ended.output
    assert "ends with 65 because of rank" in ended.output


def test_a_reference_that_is_not_there_can_be_retried(workspace: Workspace, tmp_path: Path) -> None:
    spec = workspace.spec(optimization={"beta": 0.04}, reference={"requestTimeoutSeconds": 3})
    ended = run(spec, tmp_path / "run", workspace, url=f"http://127.0.0.1:{free_port()}")
    assert ended.code == 75, ended.output[-3000:]
    assert ended.termination is not None
    assert ended.termination.reason == "ReferenceLost"
    assert "reference.requestTimeoutSeconds 3" in ended.termination.message


def test_a_missing_model_is_named_before_any_rank_waits(workspace: Workspace, tmp_path: Path) -> None:
    spec = workspace.spec(model={"name": str(tmp_path / "nowhere")})
    ended = run(spec, tmp_path / "run", workspace)
    assert ended.code == 64, ended.output[-3000:]
    assert ended.termination is not None
    assert ended.termination.message.startswith("model.name: ")


def test_peers_that_never_come_are_not_waited_for_long(workspace: Workspace, tmp_path: Path) -> None:
    """One pod of two, whose rank 0 is not there."""
    from grpo_api import env

    spec = workspace.spec(trainer={"rendezvousTimeoutSeconds": 2})
    alone = {env.PET_NNODES: "2", env.PET_NPROC_PER_NODE: "1", env.PET_NODE_RANK: "1"}
    ended = run(spec, tmp_path / "run", workspace, variables=alone)
    assert ended.code == 75, ended.output[-3000:]
    assert ended.termination is not None
    assert ended.termination.reason == "PeerLost"
    assert "trainer.rendezvousTimeoutSeconds 2" in ended.termination.message


def test_sigterm_before_training_ends_at_once(workspace: Workspace, tmp_path: Path) -> None:
    running = start(workspace.spec(trainer={"rendezvousTimeoutSeconds": 300}), tmp_path / "run", workspace,
                    variables={"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "1",
                               "PET_MASTER_ADDR": "no-such-host.invalid"})  # fmt: skip
    try:
        running.wait_for("the rank waits for rank 0's name", lambda text: "no-such-host.invalid, resolves" in text)
        running.process.send_signal(signal.SIGTERM)
        ended = running.finish(60)
    finally:
        running.kill()
    assert ended.code == 75
    assert ended.termination is not None
    assert ended.termination.reason == "Terminated"
