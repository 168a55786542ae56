"""Bad requests by the thousand, and clients that declare much and send little: nothing is lost, nothing is kept."""

import http.client
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from grpo_scoring.wire import JSON, SAFETENSORS, LogprobsRequest, encode_request

from tests.integration.trainer.refserver import ReferenceServer, reference_server
from tests.sweep.versions import make_requests

REQUESTS = 10_000
KEPT_PER_REQUEST = 1000
"""Bytes; a leak of so much must be seen."""
CONNECTIONS = 8
SECONDS = 60.0


def memory(server: ReferenceServer, name: str) -> int:
    """Bytes of the server: VmRSS now, VmHWM at most."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", status)[1])


def bodies(seed: int):
    """Endless bad bodies with their media types: damaged valid ones, and ones that only the limits refuse."""
    random = np.random.default_rng(seed)
    requests = make_requests(20, seed)
    good = [
        (encode_request(LogprobsRequest(groups), media_type), media_type)
        for groups in requests
        for media_type in (JSON, SAFETENSORS)
    ]
    refused = [
        (json.dumps({"groups": [{"prompt": [1], "completions": [[5000]]}]}).encode(), JSON),
        (json.dumps({"groups": [{"prompt": [1] * 300, "completions": [[1]]}]}).encode(), JSON),
        (json.dumps({"groups": [{"prompt": [1], "completions": [[1] * 200] * 20}]}).encode(), JSON),
        (json.dumps({"groups": [{"prompt": [1], "completions": [[1]]}], "version": f"none-{seed}"}).encode(), JSON),
    ]
    while True:
        if random.random() < 0.2:
            yield refused[random.integers(len(refused))]
            continue
        body, media_type = good[random.integers(len(good))]
        damaged = bytearray(body)
        for at in random.integers(0, min(60, len(body)), 3):
            damaged[at] = random.integers(0, 256)
        yield bytes(damaged[: random.integers(1, len(damaged))]), media_type


def send(server: ReferenceServer, count: int, seed: int) -> Counter[int]:
    """Sends bad requests over a few connections; returns the statuses."""
    seeds = range(CONNECTIONS * seed, CONNECTIONS * (seed + 1))
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        parts = pool.map(send_in_turn, [server] * CONNECTIONS, [count // CONNECTIONS] * CONNECTIONS, seeds)
        return sum(parts, Counter())


def send_in_turn(server: ReferenceServer, count: int, seed: int) -> Counter[int]:
    """Sends bad requests over one connection; returns the statuses."""
    statuses: Counter[int] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", httpx.URL(server.url).port, timeout=SECONDS)
    for number, (body, media_type) in zip(range(count), bodies(seed), strict=False):
        path = "/v1/completions" if number % 10 == 0 else "/v1/logprobs"
        connection.request("POST", path, body, {"Content-Type": JSON if number % 10 == 0 else media_type})
        response = connection.getresponse()
        response.read()
        statuses[response.status] += 1
    connection.close()
    return statuses


@pytest.mark.timeout(900)
def test_ten_thousand_bad_requests_leave_nothing_behind(server):
    send(server, 3000, seed=0)  # pools, caches and arenas reach their size
    before = memory(server, "VmRSS")
    statuses = send(server, REQUESTS, seed=1)
    kept = memory(server, "VmRSS") - before
    print(f"{dict(statuses)}; {kept / 1e6:.1f} MB more than before")
    assert sum(statuses.values()) == REQUESTS
    assert max(statuses) < 500
    assert statuses[200] < REQUESTS / 20
    assert kept < REQUESTS * KEPT_PER_REQUEST / 2
    assert httpx.get(f"{server.url}/readyz", timeout=SECONDS).status_code == 200


def raw(server: ReferenceServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", httpx.URL(server.url).port), timeout=SECONDS)


def head(media_type: str, length: int) -> bytes:
    lines = ["POST /v1/logprobs HTTP/1.1", "Host: x", f"Content-Type: {media_type}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def header(declared: dict) -> bytes:
    text = json.dumps(declared).encode()
    return struct.pack("<Q", len(text)) + text


GIGABYTE = {
    name: {"dtype": "I32", "shape": [2**28], "data_offsets": [0, 2**30]}
    for name in ("prompt_ids", "prompt_offsets", "completion_ids", "completion_offsets", "group_offsets")
}


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (head(SAFETENSORS, 10**9), 413),
        (head(JSON, 10**18), 413),
        (head(SAFETENSORS, len(header(GIGABYTE))) + header(GIGABYTE), 400),
        (head(SAFETENSORS, 12) + struct.pack("<Q", 2**30) + b"{}  ", 400),
        (head(JSON, 60_000) + b"[" * 60_000, 400),
    ],
    ids=["body of 1 GB", "body of 1 EB", "tensors of 1 GB", "header of 1 GB", "deep JSON"],
)
def test_what_is_declared_and_not_sent_costs_nothing(server, sent, status):
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the peak is what is used now
    before = memory(server, "VmHWM")
    with raw(server) as connection:
        connection.sendall(sent)
        assert connection.recv(100).startswith(f"HTTP/1.1 {status}".encode())
    assert memory(server, "VmHWM") - before < 2**23


def test_a_body_that_trickles_in_ends_with_408(model_path, tmp_path):
    with reference_server(model_path, tmp_path, "--request-timeout-seconds", "2") as server:
        stop = threading.Event()
        with raw(server) as connection:
            connection.sendall(head(JSON, 10_000))

            def trickle() -> None:
                while not stop.wait(0.2):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

            thread = threading.Thread(target=trickle)
            thread.start()
            begun = time.monotonic()
            try:
                answer = connection.recv(1000)
            finally:
                stop.set()
                thread.join()
        assert answer.startswith(b"HTTP/1.1 408")
        assert time.monotonic() - begun >= 1.9, "not before its time"
        assert httpx.get(f"{server.url}/readyz", timeout=SECONDS).status_code == 200
