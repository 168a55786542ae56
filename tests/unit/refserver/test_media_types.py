"""The forms of request and answer, by Content-Type and Accept."""

import pytest
from grpo_refserver.errors import ApiError
from grpo_refserver.media_types import media_types
from grpo_scoring.wire import JSON, SAFETENSORS
from starlette.datastructures import Headers


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        (SAFETENSORS, SAFETENSORS),
        (f"{SAFETENSORS};q=0.9", SAFETENSORS),
        (f"{SAFETENSORS.upper()} ; Q=0.001", SAFETENSORS),
        (f"text/html, {JSON}", JSON),
        (f"{SAFETENSORS}, {JSON}", JSON),
        (f"{JSON};q=0, {SAFETENSORS}", SAFETENSORS),
        (f"{JSON};q=0.5, {SAFETENSORS};q=0.8", SAFETENSORS),
        (f"{SAFETENSORS}, */*;q=0.1", SAFETENSORS),
        (f"*/*, {JSON};q=0", SAFETENSORS),
        (f"{JSON};q=0.2, application/*;q=0.1, */*", JSON),
        (f"{JSON};charset=utf-8;q=0, {SAFETENSORS};q=1.000", SAFETENSORS),
        (f"{JSON};q=much, {SAFETENSORS};q=0.9", JSON),
    ],
)
def test_accept_chooses_the_answers_form(accept, expected):
    assert media_types(Headers({"Accept": accept} if accept else {})) == (JSON, expected)


def test_in_doubt_the_answer_has_the_requests_form():
    for accept in ("*/*", f"{JSON}, {SAFETENSORS}"):
        assert media_types(Headers({"Content-Type": SAFETENSORS, "Accept": accept})) == (SAFETENSORS, SAFETENSORS)


@pytest.mark.parametrize("accept", ["text/html", f"{JSON};q=0", "*/*;q=0.0", f"{JSON};q=0, {SAFETENSORS};q=0, */*"])
def test_what_nobody_writes_is_refused(accept):
    with pytest.raises(ApiError, match="Accept must allow") as caught:
        media_types(Headers({"Accept": accept}))
    assert (caught.value.problem.status, caught.value.problem.field) == (406, "Accept")


def test_a_form_that_nobody_reads_is_refused():
    with pytest.raises(ApiError, match="Content-Type must be") as caught:
        media_types(Headers({"Content-Type": "text/plain"}))
    assert caught.value.problem.status == 415
