from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from grpo_trainer.writers import CompletionsWriter, MetricsWriter


def lines(path: Path) -> list[dict[str, Any]]:
    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def scalars(directory: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_lines_are_there_at_once_and_appended_to(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "m", tensorboard=False) as writer:
        writer.write(1, {"reward": 0.5})
        assert lines(tmp_path / "m" / "metrics.jsonl")[0]["reward"] == 0.5
    with MetricsWriter(tmp_path / "m", tensorboard=False, resumed_at=1) as writer:
        writer.write(2, {"reward": 0.75})
    written = lines(tmp_path / "m" / "metrics.jsonl")
    assert [(row["step"], row["reward"]) for row in written] == [(1, 0.5), (2, 0.75)]
    assert all(row["time"].endswith("+00:00") for row in written)
    assert not (tmp_path / "m" / "tensorboard").exists()


def test_not_finite_is_null_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MetricsWriter(tmp_path, tensorboard=True) as writer:
        for step, value in ((1, math.nan), (2, math.inf), (3, 0.5)):
            writer.write(step, {"kl": value, "loss": 1.0})
    assert [row["kl"] for row in lines(tmp_path / "metrics.jsonl")] == [None, None, 0.5]
    assert [record.getMessage() for record in caplog.records] == [
        "metric kl is nan at step 1: written as null, not said again"
    ]
    assert scalars(tmp_path, "kl") == [(3, 0.5)]
    assert scalars(tmp_path, "loss") == [(1, 1.0), (2, 1.0), (3, 1.0)]


def test_tensorboard_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path, tensorboard=True) as writer:
        for step in (1, 2, 3):
            writer.write(step, {"loss": float(step)})
    with MetricsWriter(tmp_path, tensorboard=True, resumed_at=1) as writer:
        writer.write(2, {"loss": 20.0})
    assert scalars(tmp_path, "loss") == [(1, 1.0), (2, 20.0)]


def test_completions(tmp_path: Path) -> None:
    writer = CompletionsWriter(tmp_path)
    message = [{"role": "user", "content": "¿2+2?"}]
    writer.write(4, [{"prompt": message, "completion": "4", "rewards": {"a": math.nan}, "path": tmp_path}])
    writer.close()
    assert lines(tmp_path / "completions.jsonl") == [
        {"step": 4, "prompt": message, "completion": "4", "rewards": {"a": None}, "path": str(tmp_path)}
    ]
