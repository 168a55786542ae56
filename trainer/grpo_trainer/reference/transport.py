"""One connection pool to a reference server: token, retries and the deadline, whatever is said over it."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from grpo_api import env

from grpo_trainer.errors import ConfigurationError
from grpo_trainer.interruptions import ReferenceLost
from grpo_trainer.reference.retries import FAILED, MAX_FAILURES, WAIT, backoff, not_before, retry_after

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
"""Longest wait for one connection: behind a Service the next try may reach another replica."""
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A node that is gone says nothing: seen after 30 s instead of at the deadline, so that there is time to try again."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, ready to be sent."""

    method: str
    path: str
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


Problems = Callable[[httpx.Response], str]
"""Says in words what an answer that is no success tells."""


class Transport:
    """Sends calls until an answer comes. Scoring has no side effect, so a call may be sent any number of times."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        token_file: Path | None,
        timeout_seconds: float,
        use_proxies: bool,
        describe: Problems,
    ) -> None:
        self.url = url
        self._token_file = token_file
        self._timeout = timeout_seconds
        self._describe = describe
        headers = {"Authorization": _bearer(token)} if token else {}
        # httpx takes proxies from the environment only where it makes the transport itself.
        options: dict[str, Any] = {} if use_proxies else {"transport": httpx.HTTPTransport(socket_options=_KEEP_ALIVE)}
        self._http = httpx.Client(base_url=url, headers=headers, trust_env=use_proxies, **options)
        self._closed = threading.Event()

    def close(self) -> None:
        """Break off what waits."""
        self._closed.set()
        self._http.close()

    def ask(
        self, call: Callable[[float], Call], deadline: float, *, passes: frozenset[int] = frozenset()
    ) -> httpx.Response:
        """Send until an answer comes that is neither 'later' nor a failure; return it.

        Args:
            call: seconds that are left → what to send.
            deadline: of `time.monotonic`, over all tries.
            passes: status codes, beside 200, that are an answer and not a refusal.

        Raises:
            ReferenceLost: none came within the deadline, or the server kept failing.
            ConfigurationError: the server refuses; asking again would not help.
        """
        attempt, failures, problem = 0, 0, "no answer"
        while True:
            left = deadline - time.monotonic()
            if self._closed.is_set():
                raise ReferenceLost(f"the client of the reference server {self.url} was closed")
            if failures >= MAX_FAILURES:
                raise ReferenceLost(
                    f"the reference server {self.url} failed {failures} times ({attempt} tries, the last: {problem})"
                )
            if left <= 0:
                raise self.late(f"{attempt} tries, the last: {problem}")
            wait: float | None = None
            try:
                response = self._send(call(left), left)
            except httpx.TransportError as error:
                if not (attempt and isinstance(error, httpx.TimeoutException)):
                    # A later time-out is the deadline itself: what the server said before tells more.
                    problem = f"{type(error).__name__}: {error}"
            else:
                if response.status_code == 200 or response.status_code in passes:
                    return response
                problem = f"HTTP {response.status_code}: {self._describe(response)}"
                if response.status_code in WAIT:
                    wait = retry_after(response.headers.get("Retry-After"))
                elif response.status_code in FAILED:
                    failures += 1
                elif response.status_code == 401 and self._take_new_token(response.request):
                    wait = 0.0
                else:
                    raise self._refused(response, problem)
            if attempt == 0 and not self._closed.is_set():
                logger.warning("the reference server %s: %s; tried again for %.0f s", self.url, problem, left)
            delay = backoff(attempt) if wait is None else not_before(wait)
            attempt += 1
            self._closed.wait(min(delay, max(0.0, deadline - time.monotonic())))

    def late(self, how: str) -> ReferenceLost:
        """Return the error of a deadline that is over."""
        return ReferenceLost(
            f"the reference server {self.url} gave no log-probabilities within "
            f"reference.requestTimeoutSeconds {self._timeout:g} ({how})"
        )

    def _send(self, call: Call, left: float) -> httpx.Response:
        return self._http.request(
            call.method,
            call.path,
            content=call.content,
            headers=call.headers,
            timeout=httpx.Timeout(left, connect=min(left, CONNECT_SECONDS)),
        )

    def _take_new_token(self, refused: httpx.Request) -> bool:
        """Read the token's file again; return whether it holds another token than the one that was refused."""
        if self._token_file is None:
            return False
        try:
            token = self._token_file.read_text().strip()
        except OSError:
            return False
        if not token or _bearer(token) == refused.headers.get("Authorization"):
            return False
        self._http.headers["Authorization"] = _bearer(token)
        return True

    def _refused(self, response: httpx.Response, problem: str) -> ConfigurationError:
        if response.status_code in (401, 403):
            return ConfigurationError(
                env.GRPO_TOKEN_FILE, f"the reference server {self.url} does not accept the token: {problem}"
            )
        return ConfigurationError("reference", f"the reference server {self.url} refuses the request: {problem}")


def _bearer(token: str) -> str:
    return f"Bearer {token}"
