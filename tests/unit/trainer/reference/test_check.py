"""What is told of a reference that is not the policy's."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from grpo_scoring.tokenizer_hash import tokenizer_hash
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.reference import ReferenceInfo
from grpo_trainer.reference.check import check_agreement, check_replicas, check_server, is_half, is_same_model

from tests.unit.trainer.specs import spec
from tests.unit.trainer.tiny_model import make_tokenizer

TOKENIZER = make_tokenizer()
INFO = ReferenceInfo(
    model="tiny",
    version="base",
    dtype="float32",
    vocabulary_size=272,
    tokenizer_hash=tokenizer_hash(TOKENIZER),
)


@dataclass
class Asked:
    """A server that tells what it has only where it is asked."""

    vocabulary: int = 272
    tokenizer: Any = TOKENIZER

    def has_token(self, token: int) -> bool:
        return token < self.vocabulary

    def tokenize(self, text: str) -> list[int] | None:
        return None if self.tokenizer is None else self.tokenizer.encode(text, add_special_tokens=False)


def check(info: ReferenceInfo, server: Asked | None = None, longest: int = 100) -> None:
    check_server(info, server or Asked(), vocabulary_size=272, tokenizer=TOKENIZER, dtype="float32", longest=longest)


SILENT = ReferenceInfo(model="tiny", version="default")


@pytest.mark.parametrize(
    ("info", "server"),
    [
        (INFO, Asked(vocabulary=0)),
        (replace(INFO, tokenizer_hash=None), Asked()),
        (SILENT, Asked()),
        (SILENT, Asked(tokenizer=None)),
    ],
    ids=["told", "no hash", "asked", "no tokenizer"],
)
def test_the_same_model_passes(info: ReferenceInfo, server: Asked, caplog: pytest.LogCaptureFixture) -> None:
    check(info, server)
    assert not caplog.records


class Other:
    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [1, 2, 3]


@pytest.mark.parametrize(
    ("info", "server", "words"),
    [
        (replace(INFO, vocabulary_size=151936), Asked(), "a vocabulary of 151936, the policy one of 272"),
        (SILENT, Asked(vocabulary=271), "no token id 271, the policy's last"),
        (SILENT, Asked(vocabulary=273), "a token id 272, beyond the policy's vocabulary of 272"),
        (replace(INFO, tokenizer_hash="sha256:b"), Asked(), "another tokenizer"),
        (SILENT, Asked(tokenizer=Other()), "another tokenizer"),
    ],
)
def test_other_tokens_are_refused(info: ReferenceInfo, server: Asked, words: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^reference\.model: .*{words}"):
        check(info, server)


def test_another_dtype_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check(replace(INFO, dtype="bfloat16"))
    assert "bfloat16" in caplog.text


@pytest.mark.parametrize(("longest", "warned"), [(255, False), (256, True)])
def test_a_short_context_is_warned_of(longest: int, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    check(replace(INFO, max_length=256), longest=longest)
    assert ("would end the run" in caplog.text) is warned


def test_replicas_must_serve_the_same() -> None:
    check_replicas([INFO, INFO])
    with pytest.raises(ConfigurationError, match=r"^reference: .* tiny version base, tiny version step-3"):
        check_replicas([INFO, replace(INFO, version="step-3")])


def test_the_same_name_is_the_same_model() -> None:
    assert is_same_model(INFO, spec())
    assert not is_same_model(replace(INFO, model="other"), spec())
    assert is_same_model(replace(INFO, revision="v1"), spec(model={"name": "tiny", "revision": "v1"}))
    assert not is_same_model(replace(INFO, revision="v1"), spec(model={"name": "tiny", "revision": "v2"}))


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
    assert is_half(torch.float32, None), "not known"
