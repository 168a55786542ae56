"""Answers of vLLM and SGLang that are not what was asked for. The real servers are in tests/integration/engines.

The right answers below were recorded from vLLM 0.32.0 and SGLang 0.5.23, cut to the fields that are read.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from grpo_scoring.groups import Group
from grpo_trainer.reference.dialects import DIALECTS, Dialect, DialectError

GROUPS = [Group.of([5], [[6, 7], []]), Group.of([8, 9], [[271]])]
VLLM = {
    "model": "tiny",
    "choices": [
        {
            "index": 0,
            "prompt_logprobs": [
                None,
                {"6": {"logprob": -5.647831916809082, "rank": 146, "decoded_token": "$"}},
                {"7": {"logprob": -5.547477722167969, "rank": 92, "decoded_token": "%"}},
            ],
        },
        {
            "index": 1,
            "prompt_logprobs": [
                None,
                {"9": {"logprob": -5.782833576202393, "rank": 236, "decoded_token": "'"}},
                {"271": {"logprob": -5.668704509735107, "rank": 255, "decoded_token": ""}},
            ],
        },
    ],
}
SGLANG = [
    {
        "meta_info": {
            "weight_version": "default",
            "input_token_logprobs": [[None, 5, None], [-5.647831916809082, 6, None], [-5.547477722167969, 7, None]],
        }
    },
    {
        "meta_info": {
            "weight_version": "default",
            "input_token_logprobs": [[None, 9, None], [-5.668704509735107, 0, None]],
        }
    },
]
RECORDED: dict[str, Any] = {"vllm": VLLM, "sglang": SGLANG}
VERSION = {"vllm": "tiny", "sglang": "default"}


def response(content: Any, status: int = 200) -> httpx.Response:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return httpx.Response(status, content=body, request=httpx.Request("POST", "http://engine/path"))


def made(engine: str) -> Dialect:
    return DIALECTS[engine]()


@pytest.mark.parametrize("engine", RECORDED)
def test_a_recorded_answer_is_read(engine: str) -> None:
    scores = made(engine).decode(response(RECORDED[engine]), GROUPS)
    assert scores.version == VERSION[engine]
    assert [row.dtype for row in scores.logprobs] == [np.float32] * 3
    np.testing.assert_allclose(scores.logprobs[0], [-5.6478319, -5.5474777], rtol=1e-6)
    assert scores.logprobs[1].size == 0
    np.testing.assert_allclose(scores.logprobs[2], [-5.6687045], rtol=1e-6)


def test_vllms_choices_may_come_in_any_order() -> None:
    turned = VLLM | {"choices": VLLM["choices"][::-1]}  # type: ignore[index]
    dialect = made("vllm")
    ours, straight = dialect.decode(response(turned), GROUPS), dialect.decode(response(VLLM), GROUPS)
    for one, other in zip(ours.logprobs, straight.logprobs, strict=True):
        np.testing.assert_array_equal(one, other)


def change(*path: Any, to: Any) -> Callable[[Any], None]:
    def carry_out(answer: Any) -> None:
        for key in path[:-1]:
            answer = answer[key]
        answer[path[-1]] = to

    return carry_out


_ROW = ("choices", 0, "prompt_logprobs")
_ENTRIES = (0, "meta_info", "input_token_logprobs")


@pytest.mark.parametrize(
    ("engine", "wrong", "words"),
    [
        ("vllm", change("choices", to=[]), "no list of 2 choices"),
        ("vllm", change(*_ROW, to=None), "without prompt_logprobs"),
        ("vllm", change(*_ROW, to=[None]), "1 positions came for a row of 3"),
        ("vllm", change(*_ROW, 2, to={"8": {"logprob": -1.0}}), "holds id 7 came back without it"),
        ("vllm", change(*_ROW, 1, "6", "logprob", to=-9999.0), "NaN or infinite"),
        ("sglang", change(0, to=None), "without meta_info"),
        ("sglang", change(*_ENTRIES, to=[[None, 5, None]]), "0 log-probabilities came for a completion of 2"),
        ("sglang", change(*_ENTRIES, 2, to=[-1.0, 8, None]), "id 8 came back for 7"),
        ("sglang", change(*_ENTRIES, 1, 0, to=float("nan")), "NaN or infinite"),
        ("sglang", change(0, "meta_info", "weight_version", to="v2"), "several weight versions: default, v2"),
    ],
)
def test_what_does_not_answer_the_request_is_told(engine: str, wrong: Callable[[Any], None], words: str) -> None:
    answer = copy.deepcopy(RECORDED[engine])
    wrong(answer)
    with pytest.raises(DialectError, match=words):
        made(engine).decode(response(answer), GROUPS)


@pytest.mark.parametrize("engine", RECORDED)
@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b"null"])
def test_what_is_no_answer_is_told(engine: str, body: bytes) -> None:
    with pytest.raises(DialectError):
        made(engine).decode(response(body), GROUPS)


@pytest.mark.parametrize("engine", RECORDED)
def test_rows_are_sent_without_empty_completions(engine: str) -> None:
    call = made(engine).encode(GROUPS, temperature=1.0, version=None, seconds=9)
    assert call.content is not None
    sent = json.loads(call.content)
    assert sent["prompt" if engine == "vllm" else "input_ids"] == [[5, 6, 7], [8, 9, 271]]
    if engine == "sglang":
        assert sent["logprob_start_len"] == [0, 1]


@pytest.mark.parametrize("engine", RECORDED)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            b'{"error": {"message": "Token id 272 is out of vocabulary", "code": 400}}',
            "Token id 272 is out of vocabulary",
        ),
        (b'{"error": "Unauthorized"}', "Unauthorized"),
        (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (b"", "no body"),
    ],
)
def test_errors_are_quoted(engine: str, body: bytes, words: str) -> None:
    assert made(engine).describe(response(body, 400)) == words
