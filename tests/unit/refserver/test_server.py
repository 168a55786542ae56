"""The real process: its start, its signals, its end."""

import re
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from grpo_scoring.logprobs import completion_logprobs
from grpo_scoring.wire import SAFETENSORS, decode_answer

WAIT = 120.0


def test_sigterm_answers_what_was_accepted_and_refuses_what_is_new(launch, connect, until, model, make_groups):
    server = launch("--deterministic", "--grace-period-seconds", "100")
    server.until("ready")
    # Hundreds of small forwards: long enough that the signal comes in the middle on any machine.
    groups = make_groups(*[(3, [4, 2])] * 400)
    with connect(server.port) as client, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(client.score, groups)
        with connect(server.port) as other:
            until(lambda: other.metric("grpo_reference_open_requests") == 1)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: other.get("/readyz").status_code == 503)
            assert other.get("/healthz").json() == {"status": "draining"}
            refused = other.score(make_groups((1, [1])))
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert not accepted.done()
        answer = accepted.result(WAIT)
    assert answer.status_code == 200
    ours = decode_answer(answer.content, SAFETENSORS, groups).logprobs
    np.testing.assert_allclose(ours, completion_logprobs(model, groups).values, atol=1e-6, rtol=1e-6)
    assert server.end() == 0
    messages = [line.split(" ", 1)[1] for line in server.lines]
    assert messages[-1] == "INFO stopped exit_code=0"
    assert "INFO draining" in messages
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z [A-Z]+ ", line) for line in server.lines), server.lines


def test_a_grace_period_too_short_is_an_error_and_nobody_hangs(launch, connect, until, make_groups):
    server = launch("--deterministic", "--grace-period-seconds", "0.1")
    server.until("ready")
    with connect(server.port) as client, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(client.score, make_groups(*[(3, [4, 2])] * 4000))
        with connect(server.port) as other:
            until(lambda: other.metric("grpo_reference_open_requests") == 1)
        server.process.send_signal(signal.SIGTERM)
        assert accepted.result(WAIT).status_code == 503
    assert server.end() == 1
    assert server.lines[-1].endswith("ERROR stopped exit_code=1")
    assert any("the grace period is over given_up=1" in line for line in server.lines)


def test_sigterm_while_loading_ends_at_once(launch):
    server = launch()
    server.until("loading model")
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    assert not any("ready" in line for line in server.lines)
