"""The real process: its start, its signals, its end."""

import json
import re
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from grpo_scoring.logprobs import completion_logprobs
from grpo_scoring.wire import JSON, SAFETENSORS, LogprobsRequest, decode_answer, encode_request

WAIT = 120.0


@contextmanager
def answer_begun(server, groups):
    """Asks, and reads no more than the first bytes of an answer that no socket's buffers hold; gives their rest."""
    body = encode_request(LogprobsRequest(groups), JSON)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.settimeout(WAIT)
        client.connect(("127.0.0.1", server.port))
        head = f"POST /v1/logprobs HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        assert client.recv(12) == b"HTTP/1.1 200"
        yield client


def read_all(client):
    received = bytearray()
    while chunk := client.recv(2**20):
        received += chunk
    return bytes(received)


@pytest.fixture
def large_groups(make_groups):
    """Their answer in JSON has more than 5 MB: more than a sender's socket takes by default."""
    return make_groups(*[(2, [250])] * 1200)


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


def test_sending_is_part_of_the_drain(launch, large_groups):
    server = launch("--grace-period-seconds", "100")
    server.until("ready")
    with answer_begun(server, large_groups) as client:
        server.process.send_signal(signal.SIGTERM)
        server.until("draining")
        with pytest.raises(subprocess.TimeoutExpired):  # longer than any limit but the grace period
            server.process.wait(8)
        received = read_all(client)
    header, _, body = received.partition(b"\r\n\r\n")
    assert len(body) == int(re.search(rb"content-length: (\d+)", header)[1]) > 5_000_000
    assert len(json.loads(body)["logprobs"]) == len(large_groups)
    assert server.end() == 0
    assert server.lines[-1].endswith("INFO stopped exit_code=0")


@pytest.mark.parametrize("second", [False, True])
def test_an_answer_that_is_cut_is_an_error(launch, large_groups, second):
    server = launch("--grace-period-seconds", "100" if second else "0.1")
    server.until("ready")
    with answer_begun(server, large_groups):
        server.process.send_signal(signal.SIGTERM)
        if second:
            server.until("draining")
            server.process.send_signal(signal.SIGTERM)
        assert server.end() == 1
    assert any("ERROR answers were cut: not all was sent in time cut=1" in line for line in server.lines)
    assert server.lines[-1].endswith("ERROR stopped exit_code=1")
    assert_clean(server)


def test_a_second_signal_gives_up_what_is_open(launch, connect, until, make_groups):
    server = launch("--deterministic", "--grace-period-seconds", "1000")
    server.until("ready")
    with connect(server.port) as client, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(client.score, make_groups(*[(3, [4, 2])] * 4000))
        with connect(server.port) as other:
            until(lambda: other.metric("grpo_reference_open_requests") == 1)
        server.process.send_signal(signal.SIGTERM)
        server.until("draining")
        server.process.send_signal(signal.SIGTERM)
        refused = accepted.result(WAIT)
    assert (refused.status_code, refused.headers["content-type"]) == (503, "application/problem+json")
    assert server.end() == 1
    assert any("ERROR a second signal came given_up=1" in line for line in server.lines)
    assert server.lines[-1].endswith("ERROR stopped exit_code=1")
    assert_clean(server)


def test_a_body_that_never_arrives_does_not_hold_up_the_end(launch):
    server = launch("--grace-period-seconds", "1000")
    server.until("ready")
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(WAIT)
        client.sendall(b"POST /v1/logprobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 100")  # the server waits for the body
        server.process.send_signal(signal.SIGTERM)
        assert read_all(client).startswith(b"HTTP/1.1 503")
    assert server.end() == 0
    assert_clean(server)


def test_a_root_for_versions_that_is_not_there_is_told(launch, tmp_path):
    server = launch("--versions-root", str(tmp_path / "absent"))
    server.until("loading model")
    assert any("WARNING --versions-root: no such folder (yet)" in line for line in server.lines)


def assert_clean(server):
    """One line per event, no traceback."""
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z [A-Z]+ ", line) for line in server.lines), server.lines
