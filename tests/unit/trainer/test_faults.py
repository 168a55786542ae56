"""What an error means, and which of several explains the others."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from grpo_trainer.errors import ConfigurationError, DatasetError
from grpo_trainer.faults import AgreedFault, Fault, cause, is_peer_loss
from grpo_trainer.interruptions import ReferenceLost, Superseded
from grpo_trainer.rewards.errors import RewardError


@pytest.mark.parametrize(
    ("error", "exit_code", "reason"),
    [
        (ConfigurationError("model.name", "no such model"), 64, "ConfigurationError"),
        (DatasetError("dataset.name", "no such file"), 65, "DatasetError"),
        (RewardError("f", "exception", "ValueError: x"), 65, "RewardError"),
        (ReferenceLost("gone"), 75, "ReferenceLost"),
        (Superseded("a newer one"), 75, "Superseded"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer"), 75, "PeerLost"),
        (dist.DistNetworkError("the client socket has timed out"), 75, "PeerLost"),
        (RuntimeError("shape mismatch"), 1, "Crashed"),
        (ZeroDivisionError("division by zero"), 1, "Crashed"),
    ],
)
def test_meaning(error: Exception, exit_code: int, reason: str) -> None:
    fault = Fault.of(error, rank=3)
    assert (fault.rank, fault.exit_code, fault.reason) == (3, exit_code, reason)
    assert str(error).rpartition("] ")[2] in fault.message
    assert is_peer_loss(error) == (reason == "PeerLost")


def test_an_agreed_fault_stays_what_it_was() -> None:
    fault = Fault(1, 65, "RewardError", "reward function f: broke")
    assert Fault.of(AgreedFault(fault), rank=0) == fault


def test_the_cause() -> None:
    lost, crash = Fault(0, 75, "PeerLost", ""), Fault(2, 1, "Crashed", "")
    early, late = Fault(1, 65, "RewardError", ""), Fault(3, 64, "ConfigurationError", "")
    assert cause([lost, crash]) == crash
    assert cause([lost, crash, late, early]) == early
