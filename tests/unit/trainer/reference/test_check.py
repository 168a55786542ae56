"""What is told of a reference that is not the policy's."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.reference.check import check_agreement, check_info, is_half, is_same_model

from tests.unit.trainer.specs import spec

INFO = {"model": "tiny", "revision": None, "vocabSize": 272, "tokenizerHash": "sha256:a", "dtype": "float32"}
POLICY: dict[str, Any] = {"vocabulary_size": 272, "tokenizer_hash": "sha256:a", "dtype": "float32"}


def test_the_same_model_passes(caplog: pytest.LogCaptureFixture) -> None:
    check_info(INFO, **POLICY)
    check_info(INFO | {"tokenizerHash": None}, **POLICY)
    assert not caplog.records


@pytest.mark.parametrize(
    ("change", "words"),
    [({"vocabSize": 151936}, "a vocabulary of 151936, the policy one of 272"), ({"tokenizerHash": "b"}, "tokenizer")],
)
def test_other_tokens_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^reference\.model: .*{words}"):
        check_info(INFO | change, **POLICY)


def test_another_dtype_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check_info(INFO | {"dtype": "bfloat16"}, **POLICY)
    assert "bfloat16" in caplog.text


def test_the_same_name_is_the_same_model() -> None:
    assert is_same_model(INFO, spec())
    assert not is_same_model(INFO | {"model": "other"}, spec())
    assert is_same_model(INFO | {"revision": "v1"}, spec(model={"name": "tiny", "revision": "v1"}))
    assert not is_same_model(INFO | {"revision": "v1"}, spec(model={"name": "tiny", "revision": "v2"}))


MASK = torch.tensor([[1, 1, 1, 0]])
LOGPS = torch.tensor([[-1.0, -2.0, -3.0, 0.0]])


@pytest.mark.parametrize(("off", "half", "warned"), [(1e-5, False, False), (0.05, True, False), (0.05, False, True)])
def test_agreement(off: float, half: bool, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reference = LOGPS + off
    reference[0, 3] = 100.0  # padding does not count
    check_agreement(LOGPS, reference, MASK, half=half)
    assert [record.levelname for record in caplog.records] == ["WARNING" if warned else "INFO"]


@pytest.mark.parametrize("off", [0.8, float("nan")])
def test_another_model_under_the_same_name_is_refused(off: float) -> None:
    with pytest.raises(ConfigurationError, match="Usual causes"):
        check_agreement(LOGPS, LOGPS + off, MASK, half=True)


def test_a_rank_without_tokens_has_nothing_to_say() -> None:
    check_agreement(LOGPS, LOGPS + 9, MASK * 0, half=False)


def test_half() -> None:
    assert not is_half(torch.float32, "float32")
    assert is_half(torch.float32, "bfloat16")
    assert is_half(torch.float16, "float32")
