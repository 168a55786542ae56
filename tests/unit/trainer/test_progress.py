"""The board over real HTTP."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from grpo_api.progress import Progress
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.progress import ProgressBoard, ProgressServer


def get(server: ProgressServer, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=30) as response:
        return str(response.read().decode())


def test_progress_and_metrics() -> None:
    board = ProgressBoard(attempt=2)
    with ProgressServer(board, 0) as server:
        first = Progress.model_validate_json(get(server, "/progress"))
        assert (first.attempt, first.phase, first.step, first.total_steps) == (2, "starting", 0, None)
        now = datetime.now(UTC)
        board.update(step=7, total_steps=9, reward=0.5, kl=float("nan"), loss=float("inf"), last_step_time=now)
        board.phase("training")
        told = json.loads(get(server, "/progress"))
        assert (told["step"], told["totalSteps"], told["reward"], told["phase"]) == (7, 9, 0.5, "training")
        assert told["kl"] is None
        assert told["loss"] is None
        assert Progress.model_validate(told | {"lastStepTime": now}).last_step_time == now

        board.metrics({"clip_ratio/low_mean": 0.25, "reward": 0.5})
        board.metrics({"reward": 0.75})
        lines = get(server, "/metrics").splitlines()
        assert "grpo_trainer_clip_ratio_low_mean 0.25" in lines
        assert "grpo_trainer_reward 0.75" in lines
        assert "grpo_trainer_step 7.0" in lines

        with pytest.raises(HTTPError, match="404"):
            get(server, "/else")


def test_a_port_in_use_is_named() -> None:
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as other:
        other.bind(("::" if socket.has_dualstack_ipv6() else "", 0))
        other.listen()
        with pytest.raises(ConfigurationError, match=r"^GRPO_PROGRESS_PORT: port "):
            ProgressServer(ProgressBoard(0), other.getsockname()[1])
