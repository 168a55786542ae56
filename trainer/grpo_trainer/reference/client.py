"""The client of the reference: asynchronous, with one deadline for each batch, retries included.

What is said to the server is its dialect's business (`dialects`), how it gets there the transport's (`transport`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx
from grpo_api import env
from grpo_scoring.groups import Group

from grpo_trainer.errors import ConfigurationError
from grpo_trainer.reference.dialects import DIALECTS, Ask, DialectError, Scores
from grpo_trainer.reference.dialects.dialect import Logprobs, in_order, rows
from grpo_trainer.reference.grouping import group_rows, split_requests
from grpo_trainer.reference.info import ReferenceInfo
from grpo_trainer.reference.transport import Call, Transport
from grpo_trainer.reference.version import ReferenceVersion

T = TypeVar("T")

IN_FLIGHT = 4
"""Requests of one client at a time."""
_GRACE_SECONDS = 1.0
"""A request that ends at the deadline says itself what the server told."""


class ReferenceClient:
    """Scores completions at a reference server. Threads are its own; every method may be called from the loop."""

    def __init__(
        self,
        url: str,
        *,
        engine: str = "transformers",
        token: str | None,
        token_file: Path | None = None,
        temperature: float,
        timeout_seconds: float,
        max_request_tokens: int | None = None,
        use_proxies: bool = True,
    ) -> None:
        """Connects with the first request.

        Args:
            url: base URL of the server.
            engine: whose dialect it speaks: transformers (this project's own server), vllm or sglang.
            token: bearer token.
            token_file: where `token` was read, and a new one is looked for on 401.
            temperature: logits are divided by it.
            timeout_seconds: whole deadline of one batch.
            max_request_tokens: most tokens of one request; the server may tell another limit.
            use_proxies: follow HTTP_PROXY and the like.

        Raises:
            ConfigurationError: no such engine, or it cannot score at this temperature.
        """
        if engine not in DIALECTS:
            raise ConfigurationError(env.REF_MODEL_ENGINE, f"{engine!r} is not one of {', '.join(DIALECTS)}")
        self._dialect = DIALECTS[engine]()
        if temperature != 1 and not self._dialect.scales_temperature:
            raise ConfigurationError(
                "reference.engine",
                f"{engine} gives log-probabilities of prompts at temperature 1 only, and generation.temperature is "
                f"{temperature:g}: set it to 1, or use engine transformers",
            )
        self._url = url
        self._temperature = temperature
        self._timeout = timeout_seconds
        self._max_request_tokens = max_request_tokens or self._dialect.max_request_tokens
        self._version: str | None = None
        self._transport = Transport(
            url,
            token=token,
            token_file=token_file,
            timeout_seconds=timeout_seconds,
            use_proxies=use_proxies,
            describe=self._dialect.describe,
        )
        self._pool = ThreadPoolExecutor(max_workers=IN_FLIGHT, thread_name_prefix="reference")

    def close(self) -> None:
        """Break off what is under way."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._transport.close()

    def info(self) -> ReferenceInfo:
        """Return what the server tells of itself; waits for one that is not ready yet.

        From now on batches that name no version must be scored by the version that is told here.

        Raises:
            ReferenceLost: no answer within the deadline.
            ConfigurationError: the server refuses this client, or speaks another dialect.
        """
        told = self._wait_for(self._dialect.info)
        self._version = told.version
        self._max_request_tokens = told.max_request_tokens or self._max_request_tokens
        return told

    def has_token(self, token: int) -> bool:
        """Whether the id is in the server's vocabulary, where `info` does not tell its size. Raises as `info`."""
        return self._wait_for(lambda ask: self._dialect.has_token(ask, token))

    def tokenize(self, text: str) -> list[int] | None:
        """The server's ids of a text, without special tokens; None where it does not tell. Raises as `info`."""
        return self._wait_for(lambda ask: self._dialect.tokenize(ask, text))

    def submit(
        self,
        prompts: Sequence[list[int]],
        completions: Sequence[list[int]],
        version: ReferenceVersion | None = None,
    ) -> PendingLogprobs:
        """Ask for the log-probabilities of completions, each below its prompt, without waiting.

        Neighbouring rows of one prompt go as one group, so that the server computes the prompt once where it can.

        Args:
            prompts: token ids, one prompt per completion.
            completions: token ids.
            version: the weights that must score them all; None: those that the server had at `info`.

        Raises:
            ConfigurationError: the engine has no versions.
        """
        deadline = time.monotonic() + self._timeout
        wanted = self._wanted(version)
        requests = split_requests(
            group_rows(prompts, completions), self._max_request_tokens, prompt_per_row=self._dialect.prompt_per_row
        )
        parts = [self._pool.submit(self._score, groups, wanted, deadline) for groups in requests]
        name = wanted.name if wanted and self._dialect.has_versions else self._version
        return PendingLogprobs(parts, wanted=name, url=self._url, wait=partial(self._result, deadline=deadline))

    def _wanted(self, version: ReferenceVersion | None) -> ReferenceVersion | None:
        if version is None:
            return ReferenceVersion(self._version) if self._version and self._dialect.has_versions else None
        if version.path is not None and not self._dialect.has_versions:
            raise ConfigurationError(
                "reference.sync",
                f"engine {self._dialect.engine} cannot be asked for version {version}: use engine transformers",
            )
        return version

    def _score(self, groups: list[Group], version: ReferenceVersion | None, deadline: float) -> Scores:
        if self._dialect.prompt_per_row and not rows(groups):
            return Scores(in_order(groups, []), None)

        def call(left: float) -> Call:
            return self._dialect.encode(groups, temperature=self._temperature, version=version, seconds=left)

        return self._read(lambda: self._dialect.decode(self._transport.ask(call, deadline), groups))

    def _wait_for(self, question: Callable[[Ask], T]) -> T:
        """Ask in a thread, so that not even a server that sends byte by byte outlives the deadline."""
        deadline = time.monotonic() + self._timeout

        def ask(call: Call, *, passes: frozenset[int] = frozenset()) -> httpx.Response:
            return self._transport.ask(lambda left: call, deadline, passes=passes)

        return self._result(self._pool.submit(self._read, lambda: question(ask)), deadline)

    def _read(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except DialectError as error:
            raise ConfigurationError(
                env.REF_MODEL_URL,
                f"{self._url} does not answer like a reference server of engine {self._dialect.engine}: {error}",
            ) from error

    def _result(self, future: Future[T], deadline: float) -> T:
        try:
            return future.result(timeout=max(0.0, deadline - time.monotonic()) + _GRACE_SECONDS)
        except TimeoutError:
            raise self._transport.late("its answer did not end") from None


class PendingLogprobs:
    """Log-probabilities on their way."""

    def __init__(
        self, parts: list[Future[Scores]], *, wanted: str | None, url: str, wait: Callable[[Future[Scores]], Scores]
    ) -> None:
        self._parts = parts
        self._wanted = wanted
        self._url = url
        self._wait = wait

    def result(self) -> Logprobs:
        """Wait for them; at most until the batch's deadline.

        Raises:
            ReferenceLost: they did not come in time.
            ConfigurationError: the server refused a request, or not all were scored by the version that is wanted.
        """
        scores = [self._wait(part) for part in self._parts]
        versions = sorted({one.version for one in scores if one.version is not None})
        if len(versions) > 1 or (versions and self._wanted is not None and versions != [self._wanted]):
            raise ConfigurationError(
                "reference",
                f"{self._url} scored a batch with version {' and '.join(versions)}, wanted was "
                f"{self._wanted or 'one for the whole batch'}: somebody else replaces its weights, or its replicas "
                "serve different ones. Give this job a server of its own",
            )
        return [sequence for one in scores for sequence in one.logprobs]
