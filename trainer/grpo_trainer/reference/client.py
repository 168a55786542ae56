"""The client of the reference server: asynchronous, with one deadline for each batch, retries included.

Protocol: `POST /v1/logprobs` and `GET /v1/info` (design §7, messages in `grpo_scoring.wire`).
"""

from __future__ import annotations

import email.utils
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from grpo_api import env
from grpo_scoring.groups import Group
from grpo_scoring.problem import decode_problem
from grpo_scoring.wire import SAFETENSORS, LogprobsRequest, WireError, decode_answer, encode_request
from numpy.typing import NDArray

from grpo_trainer.errors import ConfigurationError
from grpo_trainer.interruptions import ReferenceLost
from grpo_trainer.reference.version import ReferenceVersion

logger = logging.getLogger(__name__)

Logprobs = list[NDArray[np.float32]]
"""One array per completion, (C_i,)."""

WAIT = frozenset({408, 425, 429, 502, 503, 504})
"""The server, or a proxy before it, is busy, not ready or too slow: as long as the deadline allows."""
FAILED = frozenset({500})
"""The server failed: a few times."""
MAX_FAILURES = 4
CONNECT_SECONDS = 10.0
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.25, 15.0


class ReferenceClient:
    """Scores completions at a reference server. Threads are its own; every method may be called from the loop."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        token_file: Path | None = None,
        temperature: float,
        timeout_seconds: float,
        max_request_tokens: int | None = None,
        use_proxies: bool = True,
    ) -> None:
        """Connects with the first request.

        Args:
            token_file: where `token` was read, and a new one is looked for on 401.
            timeout_seconds: whole deadline of one batch.
            use_proxies: follow HTTP_PROXY and the like.
        """
        self._url = url
        self._temperature = temperature
        self._timeout = timeout_seconds
        self._max_request_tokens = max_request_tokens
        self._token_file = token_file
        headers = {"Authorization": _bearer(token)} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, trust_env=use_proxies)
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="reference")
        self._closed = threading.Event()

    def close(self) -> None:
        """Break off what is under way."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def info(self) -> dict[str, Any]:
        """Return what /v1/info tells; waits for a server that is not ready yet.

        Raises:
            ReferenceLost: no answer within the deadline.
            ConfigurationError: the server refuses this client, or is none.
        """
        deadline = time.monotonic() + self._timeout
        response = self._ask(lambda left: self._http.get("/v1/info", timeout=left), deadline)
        try:
            content = response.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ConfigurationError(env.REF_MODEL_URL, f"{self._url}/v1/info does not answer like a reference server")
        self._max_request_tokens = content.get("maxRequestTokens", self._max_request_tokens)
        return content

    def submit(
        self,
        prompts: Sequence[list[int]],
        completions: Sequence[list[int]],
        version: ReferenceVersion | None = None,
    ) -> PendingLogprobs:
        """Ask for the log-probabilities of completions, each below its prompt, without waiting.

        Neighbouring rows of one prompt go as one group, so that the server computes the prompt once.

        Args:
            prompts: token ids, one prompt per completion.
            completions: token ids.
            version: the weights that must score them all; None: whatever the server has.
        """
        deadline = time.monotonic() + self._timeout
        groups = group_rows(prompts, completions)
        requests = split_requests(groups, self._max_request_tokens)
        return PendingLogprobs([self._pool.submit(self._score, request, version, deadline) for request in requests])

    def _score(self, groups: list[Group], version: ReferenceVersion | None, deadline: float) -> Logprobs:
        def post(left: float) -> httpx.Response:
            request = LogprobsRequest(
                groups,
                temperature=self._temperature,
                deadline_seconds=left,
                version=version.name if version else None,
                version_path=version.path if version else None,
            )
            body = encode_request(request, SAFETENSORS)
            return self._http.post("/v1/logprobs", content=body, headers={"Content-Type": SAFETENSORS}, timeout=left)

        response = self._ask(post, deadline)
        media_type = response.headers.get("Content-Type", "").partition(";")[0]
        try:
            answer = decode_answer(response.content, media_type, groups)
        except (WireError, ValueError) as error:
            raise ConfigurationError(
                env.REF_MODEL_URL, f"{self._url} does not answer like a reference server: {error}"
            ) from error
        return np.split(answer.logprobs, answer.offsets[1:-1])

    def _ask(self, send: Callable[[float], httpx.Response], deadline: float) -> httpx.Response:
        """Send until an answer comes that is neither 'later' nor a failure; scoring has no side effect."""
        attempt, failures, problem = 0, 0, "no answer"
        while True:
            left = deadline - time.monotonic()
            if self._closed.is_set():
                raise ReferenceLost(f"the client of the reference server {self._url} was closed")
            if failures >= MAX_FAILURES:
                raise ReferenceLost(
                    f"the reference server {self._url} failed {failures} times ({attempt} tries, the last: {problem})"
                )
            if left <= 0:
                raise ReferenceLost(
                    f"the reference server {self._url} gave no log-probabilities within "
                    f"reference.requestTimeoutSeconds {self._timeout:g} ({attempt} tries, the last: {problem})"
                )
            wait: float | None = None
            try:
                response = send(left)
            except httpx.TransportError as error:
                if not (attempt and isinstance(error, httpx.TimeoutException)):
                    # A later time-out is the deadline itself: what the server said before tells more.
                    problem = f"{type(error).__name__}: {error}"
            else:
                if response.status_code == 200:
                    return response
                problem = self._describe(response)
                if response.status_code in WAIT:
                    wait = retry_after(response.headers.get("Retry-After"))
                elif response.status_code in FAILED:
                    failures += 1
                elif response.status_code == 401 and self._take_new_token(response.request):
                    wait = 0.0
                else:
                    raise self._refused(response, problem)
            if attempt == 0 and not self._closed.is_set():
                logger.warning("the reference server %s: %s; tried again for %.0f s", self._url, problem, left)
            delay = backoff(attempt) if wait is None else wait * random.uniform(1.0, 1.25)  # noqa: S311
            attempt += 1
            self._closed.wait(min(delay, max(0.0, deadline - time.monotonic())))

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
                env.GRPO_TOKEN_FILE, f"the reference server {self._url} does not accept the token: {problem}"
            )
        return ConfigurationError("reference", f"the reference server {self._url} refuses the request: {problem}")

    @staticmethod
    def _describe(response: httpx.Response) -> str:
        problem = decode_problem(response.status_code, response.content)
        where = f" ({problem.field})" if problem.field else ""
        return f"HTTP {problem.status}: {problem.detail}{where}"


class PendingLogprobs:
    """Log-probabilities on their way."""

    def __init__(self, parts: list[Future[Logprobs]]) -> None:
        self._parts = parts

    def result(self) -> Logprobs:
        """Wait for them; at most until the batch's deadline.

        Raises:
            ReferenceLost: they did not come in time.
            ConfigurationError: the server refused the request.
        """
        return [sequence for part in self._parts for sequence in part.result()]


def _bearer(token: str) -> str:
    return f"Bearer {token}"


def group_rows(prompts: Sequence[list[int]], completions: Sequence[list[int]]) -> list[Group]:
    """Neighbouring rows with the same prompt → one group; the completions' order stays."""
    groups: list[tuple[list[int], list[list[int]]]] = []
    for prompt, completion in zip(prompts, completions, strict=True):
        if not groups or groups[-1][0] != prompt:
            groups.append((prompt, []))
        groups[-1][1].append(completion)
    return [Group.of(prompt, members) for prompt, members in groups]


def split_requests(groups: Sequence[Group], max_tokens: int | None) -> list[list[Group]]:
    """Cut groups into requests of at most `max_tokens` tokens, a group's prompt counted once (None: no limit).

    A group that is larger is cut too; a single row that is larger goes alone, and the server says what is wrong.
    """
    if max_tokens is None:
        return [list(groups)]
    requests: list[list[Group]] = []
    free = 0
    for group in groups:
        for completion in group.completions:
            goes_on = bool(requests) and requests[-1][-1].prompt is group.prompt
            size = completion.size if goes_on else group.prompt.size + completion.size
            if not requests or size > free:
                requests.append([])
                goes_on, size, free = False, group.prompt.size + completion.size, max_tokens
            last = requests[-1]
            if goes_on:
                last[-1] = Group(group.prompt, (*last[-1].completions, completion))
            else:
                last.append(Group(group.prompt, (completion,)))
            free -= size
    return requests


def backoff(attempt: int) -> float:
    """Seconds before the next try: doubling, with full jitter, so that ranks do not come back all at once."""
    return random.uniform(0.5, 1.0) * min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(attempt, 16))  # noqa: S311


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header (RFC 9110: seconds, or a date); None where there is none that can be read."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())
