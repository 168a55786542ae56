"""The reason in the termination log."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpo_api.progress import Termination
from grpo_api.termination import read_termination, write_termination

REASON = Termination(reason="RewardError", message="broke", rank=1, exit_code=65, step=3)


def test_written_and_read(tmp_path: Path) -> None:
    write_termination(REASON, tmp_path / "log")
    assert read_termination(tmp_path / "log") == REASON


def test_a_long_message_fits_into_kubernetes_limit(tmp_path: Path) -> None:
    write_termination(REASON.model_copy(update={"message": "é" * 5000}), tmp_path / "log")
    assert (tmp_path / "log").stat().st_size <= 4096
    read = read_termination(tmp_path / "log")
    assert read is not None
    assert read.exit_code == 65


def test_a_file_that_cannot_be_written_is_only_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_termination(REASON, tmp_path / "no" / "folder")
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize("content", [None, "", "killed", '{"reason": 1}'])
def test_nothing_that_can_be_read(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "log").write_text(content)
    assert read_termination(tmp_path / "log") is None
