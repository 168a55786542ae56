"""The reference client against a real HTTP server that answers as each test scripts it.

The server is a stand-in, because a real reference server cannot be made to fail in these ways on demand; the real one
is used in tests/integration/trainer.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grpo_scoring.groups import Group, completion_offsets
from grpo_scoring.problem import Problem, encode_problem
from grpo_scoring.wire import SAFETENSORS, LogprobsAnswer, decode_request, encode_answer
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.interruptions import ReferenceLost
from grpo_trainer.reference import ReferenceClient, ReferenceInfo, ReferenceVersion

PROMPTS = [[1, 2], [1, 2], [3], [3]]
COMPLETIONS = [[4, 5, 6], [7], [8, 9], [1]]

Answer = tuple[int, dict[str, str], bytes] | None
"""Status, headers, body; None breaks the connection off."""


@dataclass
class Scripted:
    """A server that answers in turn, and rightly once the script is over."""

    script: list[Answer] = field(default_factory=list)
    requests: list[list[Group]] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    versions: list[str | None] = field(default_factory=list)
    paths: list[str | None] = field(default_factory=list)
    has: list[str] = field(default_factory=lambda: ["base"])
    """Versions that it answers with, in turn, the last one for ever; a request's own version does not count."""
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


def problem(status: int, detail: str, **headers: str) -> Answer:
    return status, headers, encode_problem(Problem(status, detail))


@contextmanager
def serving(server: Scripted) -> Iterator[Scripted]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = decode_request(body, self.headers["Content-Type"])
            groups = list(request.groups)
            with server.lock:
                server.requests.append(groups)
                server.deadlines.append(request.deadline_seconds or 0)
                server.tokens.append(self.headers["Authorization"])
                server.versions.append(request.version)
                server.paths.append(request.version_path)
                version = server.has.pop(0) if len(server.has) > 1 else server.has[0]
                answer = server.script.pop(0) if server.script else _right(groups, version)
            self.reply(answer)

        def do_GET(self) -> None:
            told = {"model": "tiny", "version": server.has[0], "vocabSize": 272, "maxRequestTokens": 5}
            self.reply((200, {"Content-Type": "application/json"}, json.dumps(told).encode()))

        def reply(self, answer: Answer) -> None:
            if answer is None:
                self.connection.close()
                return
            status, headers, content = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


def _right(groups: list[Group], version: str = "base") -> Answer:
    """As log-probability of each token: minus its id."""
    ids = np.concatenate([completion for group in groups for completion in group.completions])
    answer = LogprobsAnswer(-ids.astype(np.float32), completion_offsets(groups), "tiny", version)
    return 200, {"Content-Type": SAFETENSORS}, encode_answer(answer, groups, SAFETENSORS)


def score(server: Scripted, timeout: float = 20.0, **options: Any) -> list[list[float]]:
    client = ReferenceClient(
        server.url, token="secret", temperature=1.0, timeout_seconds=timeout, use_proxies=False, **options
    )
    try:
        return [row.tolist() for row in client.submit(PROMPTS, COMPLETIONS).result()]
    finally:
        client.close()


RIGHT = [[-4, -5, -6], [-7], [-8, -9], [-1]]


def test_rows_go_as_groups_and_come_back_in_order() -> None:
    with serving(Scripted()) as server:
        assert score(server) == RIGHT
    (groups,) = server.requests
    assert groups == [Group.of([1, 2], [[4, 5, 6], [7]]), Group.of([3], [[8, 9], [1]])]
    assert server.tokens == ["Bearer secret"]
    assert 0 < server.deadlines[0] <= 20


def test_large_batches_are_cut() -> None:
    with serving(Scripted()) as server:
        assert score(server, max_request_tokens=5) == RIGHT
    assert len(server.requests) == 3
    assert all(sum(group.tokens for group in groups) <= 5 for groups in server.requests)


@pytest.mark.parametrize(
    "script",
    [
        [None],
        [None, None, None, None, None, None],
        [problem(503, "loading"), problem(503, "loading", Retry_After="0")],
        [problem(429, "queue full", Retry_After="0")] * 6,
        [problem(500, "out of memory")] * 3,
        [problem(502, "bad gateway", Retry_After="0"), (504, {"Retry_After": "0"}, b"<html>")] * 3,
        [problem(408, "the body did not arrive in time"), problem(425, "too early")],
    ],
    ids=["connection", "connections", "503", "429", "failures", "gateway", "timing"],
)
def test_what_passes_is_tried_again(script: list[Answer]) -> None:
    count = len(script)
    with serving(Scripted(script=list(script))) as server:
        assert score(server, timeout=60) == RIGHT
    assert len(server.requests) == count + 1
    assert server.deadlines == sorted(server.deadlines, reverse=True), "one deadline over all tries"


def test_retry_after_is_kept_to() -> None:
    with serving(Scripted(script=[problem(503, "loading", Retry_After="1")])) as server:
        started = time.monotonic()
        assert score(server) == RIGHT
    assert time.monotonic() - started >= 1.0


def test_a_server_that_stays_busy_is_lost_at_the_deadline() -> None:
    with serving(Scripted(script=[problem(429, "queue full", Retry_After="0")] * 10000)) as server:
        with pytest.raises(ReferenceLost, match=r"requestTimeoutSeconds 3 .*HTTP 429: queue full"):
            score(server, timeout=3)
        assert len(server.requests) > 1


def test_a_server_that_keeps_failing_is_lost_before_the_deadline() -> None:
    with (
        serving(Scripted(script=[problem(500, "CUDA error")] * 10)) as server,
        pytest.raises(ReferenceLost, match=r"failed 4 times \(4 tries, the last: HTTP 500: CUDA error"),
    ):
        score(server, timeout=600)


def test_a_server_that_is_not_there_is_lost() -> None:
    with serving(Scripted()) as server:
        pass
    with pytest.raises(ReferenceLost, match="ConnectError"):
        score(server, timeout=0.5)


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (problem(401, "no such token"), "GRPO_TOKEN_FILE"),
        (problem(422, "token id 999 is not below 272"), "reference"),
        (problem(413, "too large"), "reference"),
        (problem(400, "does not decode"), "reference"),
        ((200, {"Content-Type": "text/html"}, b"<html>"), "REF_MODEL_URL"),
        ((200, {"Content-Type": SAFETENSORS}, b"junk"), "REF_MODEL_URL"),
    ],
)
def test_a_refusal_is_permanent(answer: Answer, field: str) -> None:
    with serving(Scripted(script=[answer] * 9)) as server:
        with pytest.raises(ConfigurationError, match=f"^{field}: "):
            score(server, timeout=600)
        assert len(server.requests) == 1


def test_a_new_token_is_read_on_401(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("new\n")
    with serving(Scripted(script=[problem(401, "no such token")])) as server:
        assert score(server, token_file=token_file) == RIGHT
    assert server.tokens == ["Bearer secret", "Bearer new"]


@pytest.mark.parametrize("content", ["secret\n", "", None])
def test_a_401_is_permanent_where_the_file_has_no_new_token(content: str | None, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    if content is not None:
        token_file.write_text(content)
    with serving(Scripted(script=[problem(401, "no such token")] * 9)) as server:
        with pytest.raises(ConfigurationError, match=r"^GRPO_TOKEN_FILE: "):
            score(server, token_file=token_file)
        assert len(server.requests) == 1


def test_a_401_is_permanent_where_the_new_token_is_refused_too(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("new")
    with serving(Scripted(script=[problem(401, "no such token")] * 9)) as server:
        with pytest.raises(ConfigurationError, match=r"^GRPO_TOKEN_FILE: "):
            score(server, token_file=token_file)
        assert server.tokens == ["Bearer secret", "Bearer new"]


def test_closing_breaks_off_the_wait() -> None:
    with serving(Scripted(script=[problem(503, "loading", Retry_After="500")] * 9)) as server:
        client = ReferenceClient(server.url, token=None, temperature=1.0, timeout_seconds=600, use_proxies=False)
        pending = client.submit(PROMPTS, COMPLETIONS)
        _until(lambda: bool(server.requests))
        client.close()
        with pytest.raises(ReferenceLost):
            pending.result()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def client_of(server: Scripted, timeout: float = 20.0) -> Iterator[ReferenceClient]:
    client = ReferenceClient(server.url, token=None, temperature=1.0, timeout_seconds=timeout, use_proxies=False)
    try:
        yield client
    finally:
        client.close()


def test_the_version_that_is_wanted_is_asked_for() -> None:
    with serving(Scripted(has=["step-3"])) as server, client_of(server) as client:
        pending = client.submit(PROMPTS, COMPLETIONS, ReferenceVersion("step-3", "/output/versions/step-3"))
        assert [row.tolist() for row in pending.result()] == RIGHT
    assert (server.versions, server.paths) == (["step-3"], ["/output/versions/step-3"])


def test_without_a_wanted_version_that_of_the_start_is_asked_for() -> None:
    with serving(Scripted(has=["base"])) as server, client_of(server) as client:
        assert client.info() == ReferenceInfo("tiny", "base", vocabulary_size=272, max_request_tokens=5)
        assert [row.tolist() for row in client.submit(PROMPTS, COMPLETIONS).result()] == RIGHT
    assert server.versions == ["base"] * 3, "cut into requests of maxRequestTokens"


@pytest.mark.parametrize(
    ("has", "wanted", "words"),
    [
        (["base"], ReferenceVersion("step-3"), "with version base, wanted was step-3"),
        (["base", "step-3", "base"], None, "with version base and step-3, wanted was base"),
    ],
    ids=["another", "several"],
)
def test_a_batch_of_other_versions_is_refused(has: list[str], wanted: ReferenceVersion | None, words: str) -> None:
    with serving(Scripted(has=has)) as server, client_of(server) as client:
        client.info()
        with pytest.raises(ConfigurationError, match=rf"^reference: .* {words}"):
            client.submit(PROMPTS, COMPLETIONS, wanted).result()


def test_an_answer_that_never_ends_is_lost_at_the_deadline() -> None:
    """Byte by byte, each in time for a read: only a limit on the whole ends it."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ended = threading.Event()

    def trickle() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not ended.wait(0.05):
                connection.sendall(b" ")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        with client_of(Scripted(url=url), timeout=1) as client, pytest.raises(ReferenceLost, match="did not end"):
            client.submit(PROMPTS, COMPLETIONS).result()
    finally:
        ended.set()
        thread.join()
        listener.close()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_engines_that_cannot_scale_refuse_a_temperature(engine: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^reference.engine: .* temperature 1 only"):
        ReferenceClient("http://x", engine=engine, token=None, temperature=0.7, timeout_seconds=1)


def test_engines_without_versions_refuse_one() -> None:
    client = ReferenceClient("http://127.0.0.1:9", engine="vllm", token=None, temperature=1.0, timeout_seconds=1)
    try:
        with pytest.raises(ConfigurationError, match=r"^reference.sync: engine vllm"):
            client.submit([[1]], [[2]], ReferenceVersion("step-3", "/output/versions/step-3"))
    finally:
        client.close()


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^REF_MODEL_ENGINE: 'tgi' is not one of transformers, vllm, sglang"):
        ReferenceClient("http://x", engine="tgi", token=None, temperature=1.0, timeout_seconds=1)
