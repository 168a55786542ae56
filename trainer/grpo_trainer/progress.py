"""What rank 0 tells while it runs: GET /progress (JSON) and /metrics (Prometheus), served from a thread."""

from __future__ import annotations

import logging
import math
import re
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from grpo_api import env
from grpo_api.progress import Progress
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

from grpo_trainer.errors import ConfigurationError

logger = logging.getLogger(__name__)


class ProgressBoard:
    """The newest progress and metrics; written by the loop, read by the server's threads."""

    def __init__(self, attempt: int) -> None:
        self._lock = threading.Lock()
        self._progress = Progress(attempt=attempt, phase="starting", step=0)
        self._registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}

    def update(self, **changes: Any) -> None:
        """Change fields of the progress; numbers that are not finite become null."""
        finite = {name: None if _not_finite(value) else value for name, value in changes.items()}
        with self._lock:
            self._progress = self._progress.model_copy(update=finite)

    def phase(self, name: str) -> None:
        """Say what the trainer is doing (the words are those of `Progress.phase`)."""
        self.update(phase=name)

    def metrics(self, values: Mapping[str, float]) -> None:
        """Show metrics as Prometheus gauges: `clip_ratio/low_mean` becomes `grpo_trainer_clip_ratio_low_mean`."""
        with self._lock:
            for name, value in values.items():
                if name not in self._gauges:
                    label = "grpo_trainer_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)
                    self._gauges[name] = Gauge(label, f"{name} of the last logged step", registry=self._registry)
                self._gauges[name].set(value)

    @property
    def progress(self) -> Progress:
        """The newest progress."""
        with self._lock:
            return self._progress

    def exposition(self) -> bytes:
        """The metrics in Prometheus' text format, the step among them."""
        progress = self.progress
        self.metrics({"step": float(progress.step), "attempt": float(progress.attempt)})
        return generate_latest(self._registry)


class ProgressServer:
    """Serves a board over HTTP; no token is asked for (a NetworkPolicy guards the port)."""

    def __init__(self, board: ProgressBoard, port: int) -> None:
        """`port` 0 takes a free one.

        Raises:
            ConfigurationError: the port cannot be used.
        """
        try:
            self._server = _Server(board, port)
        except OSError as error:
            raise ConfigurationError(env.GRPO_PROGRESS_PORT, f"port {port} cannot be used: {error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="progress", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, board: ProgressBoard, port: int) -> None:
        self.board = board
        if socket.has_dualstack_ipv6():  # clusters may give pods addresses of either family
            self.address_family = socket.AF_INET6
            super().__init__(("::", port), _Handler)
        else:
            super().__init__(("", port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # seconds a silent client may hold a thread

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/progress":
            self._answer(self.server.board.progress.model_dump_json(by_alias=True).encode(), "application/json")
        elif path == "/metrics":
            self._answer(self.server.board.exposition(), CONTENT_TYPE_LATEST)
        else:
            self.send_error(404, "there are /progress and /metrics")

    def _answer(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        logger.debug(format, *args)


def _not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
