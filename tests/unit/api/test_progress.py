"""Progress and termination messages."""

import json

import pytest
from grpo_api.progress import Progress, Termination
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError


@given(st.text(max_size=20_000))
def test_a_termination_message_fits_and_stays_json(message: str):
    text = Termination(reason="Crashed", message=message, rank=1, exit_code=1).to_log()
    assert len(text.encode()) <= 4096
    told = json.loads(text)["message"]
    assert told == message or (told.endswith("…") and message.startswith(told[:-1]))


def test_progress_is_never_nan():
    with pytest.raises(ValidationError, match="finite"):
        Progress(attempt=0, phase="training", step=1, loss=float("nan"))
