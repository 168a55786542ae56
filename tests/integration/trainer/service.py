"""A stand-in for a Service in front of several reference servers: what it stands in for is the cluster's network.

It hands each request to the next server, as it is, and the answer back; a server that is not there breaks the client's
connection off, as a pod does that has just died. What it adds for the tests: it writes down which server answered
which version, and it can hold requests back until a condition holds.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from grpo_scoring.wire import decode_answer, decode_request


@dataclass(frozen=True)
class Answer:
    """One answer of `/v1/logprobs` with status 200."""

    server: int
    wanted: str | None
    """The version in the request."""
    used: str
    """The version in the answer."""


@dataclass
class Service:
    """Where it listens, and what went through it."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    broken: int = 0
    """Requests whose server was not there, or died while it answered."""
    gate: Callable[[str | None], None] = lambda version: None
    """Called with the version that a request wants, before it is handed on."""


@contextlib.contextmanager
def service(*servers: str) -> Iterator[Service]:
    """Serve one address for several until the block ends."""
    listener = _Listener(servers)
    thread = threading.Thread(target=listener.serve_forever, name="service", daemon=True)
    thread.start()
    try:
        yield listener.service
    finally:
        listener.shutdown()
        listener.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, servers: tuple[str, ...]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = Service(f"http://127.0.0.1:{self.server_address[1]}")
        self.turns = itertools.cycle(enumerate(servers))
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._pass(b"")

    def do_POST(self) -> None:
        self._pass(self.rfile.read(int(self.headers["Content-Length"])))

    def _pass(self, body: bytes) -> None:
        asked = decode_request(body, self.headers["Content-Type"]) if self.path == "/v1/logprobs" else None
        if asked is not None:
            self.server.service.gate(asked.version)
        with self.server.lock:
            number, address = next(self.server.turns)
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
        try:
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            connection.request(self.command, self.path, body, kept)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            with self.server.lock:
                self.server.service.broken += 1
            self.close_connection = True
            return
        finally:
            connection.close()
        media_type = response.headers.get("Content-Type", "")
        if asked is not None and response.status == 200:
            used = decode_answer(content, media_type, asked.groups).version
            with self.server.lock:
                self.server.service.answers.append(Answer(number, asked.version, used))
        self.send_response(response.status)
        for name in ("Content-Type", "Retry-After"):
            if value := response.headers.get(name):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        pass
