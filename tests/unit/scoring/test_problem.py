import json

import pytest
from grpo_scoring.problem import Problem, decode_problem, encode_problem
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("field", [None, "groups[2].prompt"])
def test_a_problem_comes_back(field):
    problem = Problem(422, "the prompt is empty: send at least one token", field)
    assert decode_problem(422, encode_problem(problem)) == problem


def test_the_body_is_rfc_9457():
    assert json.loads(encode_problem(Problem(429, "queue full"))) == {
        "type": "about:blank",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "queue full",
    }


@given(st.binary(max_size=400))
def test_any_body_gives_a_problem_in_one_line(body):
    problem = decode_problem(502, body)
    assert problem.status == 502
    assert problem.detail


def test_a_proxys_page_is_kept_short():
    assert decode_problem(502, b"<html>\n bad   gateway</html>").detail == "<html> bad gateway</html>"
    assert decode_problem(502, b"").detail == "HTTP 502 without a body"
