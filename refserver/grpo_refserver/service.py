"""One scoring request from its body to its answer, apart from HTTP's routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import Request
from grpo_scoring.groups import Group
from grpo_scoring.logprobs import CompletionLogprobs
from grpo_scoring.wire import LogprobsAnswer, LogprobsRequest, WireError, decode_request, encode_answer

from grpo_refserver.batcher import Batcher, Task
from grpo_refserver.engine import Refusal, VersionError
from grpo_refserver.errors import ApiError
from grpo_refserver.limits import check_groups, read_body
from grpo_refserver.metrics import Metrics
from grpo_refserver.model import LoadedModel
from grpo_refserver.settings import Settings
from grpo_refserver.start_engine import start_engine
from grpo_refserver.worker import ExpiredError, NotServingError, QueueFullError, ScoringError, State, Worker


class Service:
    """The settings, the worker and the requests in between."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.worker = Worker(
            lambda: start_engine(settings),
            Batcher(settings.max_batch_tokens, deterministic=settings.deterministic),
            max_queued_tokens=settings.max_queued_tokens,
            metrics=self.metrics,
        )
        self._unanswered = 0
        self._bodies: set[asyncio.Timeout] = set()
        self.idle = asyncio.Event()
        """Set while no body is being read and every request that was accepted has its result."""
        self.idle.set()

    @property
    def state(self) -> State:
        """Where the server stands."""
        return self.worker.state

    def loaded(self) -> LoadedModel:
        """The model, once it serves. Raises ApiError 503 before, and while shutting down."""
        loaded = self.worker.loaded
        if loaded is None or self.state is not State.READY:
            raise not_serving(self.state)
        return loaded

    def drain(self, body_seconds: float) -> None:
        """Takes no more requests; what is on its way has so many seconds to arrive, to get a 503."""
        self.worker.drain()
        self._hurry_bodies(body_seconds)

    def give_up(self) -> int:
        """Answers everything that is open with 503; returns how many of these requests had been accepted."""
        given_up = self._unanswered
        self.worker.abandon()
        self._hurry_bodies(0)
        return given_up

    async def read(self, request: Request) -> bytes:
        """Reads a body. Raises ApiError 408 or 413, and 503 unless the server is ready."""
        self.loaded()
        limit = asyncio.timeout(self.settings.request_timeout_seconds)
        try:
            async with limit:
                self._bodies.add(limit)
                self._note_idle()
                return await read_body(request, self.settings.request_bytes)
        except TimeoutError:
            self.loaded()  # hurried by the end of the server
            raise ApiError(408, "the body did not arrive in time: send it in one go", "body") from None
        finally:
            self._bodies.discard(limit)
            self._note_idle()

    def _hurry_bodies(self, seconds: float) -> None:
        latest = asyncio.get_running_loop().time() + seconds
        for limit in self._bodies:
            if not limit.expired():
                limit.reschedule(min(limit.when() or latest, latest))

    def _note_idle(self) -> None:
        if self._unanswered or self._bodies:
            self.idle.clear()
        else:
            self.idle.set()

    def check(self, asked: LogprobsRequest) -> None:
        """Raises ApiError 413 or 422 where this model cannot score the groups."""
        loaded = self.loaded()
        check_groups(
            asked.groups,
            vocab_size=loaded.vocab_size,
            max_sequence_length=loaded.max_sequence_length,
            max_request_tokens=self.settings.request_tokens,
        )

    async def receive(self, request: Request, media_type: str) -> LogprobsRequest:
        """Reads, decodes and checks a request. Raises ApiError."""
        body = await self.read(request)
        return await asyncio.to_thread(self._decode, body, media_type)  # many groups take seconds

    def _decode(self, body: bytes, media_type: str) -> LogprobsRequest:
        try:
            asked = decode_request(body, media_type)
        except WireError as error:
            raise ApiError(400 if error.field == "body" else 422, str(error), error.field) from None
        self.check(asked)
        self._check_version(asked.version, asked.version_path)
        return asked

    async def score(self, request: Request, asked: LogprobsRequest) -> LogprobsAnswer | None:
        """Waits for the log-probabilities; None if the client went away. Raises ApiError."""
        loaded = self.loaded()
        seconds = self._seconds(asked.deadline_seconds)
        async with self._counted():
            begun = time.monotonic()
            task = await asyncio.to_thread(
                self._task, asked.groups, asked.temperature, asked.version, asked.version_path, seconds
            )
            scored = await self._await_result(request, task, seconds)
            if scored is None:
                return None
            self.metrics.request_seconds.observe(time.monotonic() - begun)
            wait = task.wait_seconds or 0.0
            self.metrics.wait_seconds.observe(wait)
            request.state.timing = {
                "wait_ms": round(1000 * wait),
                "forward_ms": round(1000 * task.forward_seconds),
            }
            assert task.version is not None, "set by the batch that began it"
            return LogprobsAnswer(scored.values, scored.offsets, loaded.name, task.version)

    async def load(self, request: Request, version: str, path: str | None, seconds: float | None) -> bool:
        """Waits until a version is loaded; False if the client went away. Raises ApiError."""
        self.loaded()
        self._check_version(version, path)
        seconds = self._seconds(seconds)
        task = self._task([], 1.0, version, path, seconds)
        async with self._counted():
            return await self._await_result(request, task, seconds) is not None

    def _check_version(self, version: str | None, path: str | None) -> None:
        if path is not None and version == self.settings.model_version:
            raise ApiError(
                422,
                f"version {version} is what the server was started with, and lies nowhere else: leave versionPath out, "
                "or give the version another name",
                "versionPath",
            )

    def _seconds(self, asked: float | None) -> float:
        """How long a request may take."""
        limit = self.settings.request_timeout_seconds
        return min(asked or limit, limit)

    def _task(
        self, groups: Sequence[Group], temperature: float, version: str | None, path: str | None, seconds: float
    ) -> Task:
        deadline = time.monotonic() + seconds
        return Task(groups, temperature, version, path=Path(path) if path is not None else None, deadline=deadline)

    async def _await_result(self, request: Request, task: Task, seconds: float) -> CompletionLogprobs | None:
        try:
            result = asyncio.wrap_future(self.worker.submit(task))
        except NotServingError as error:
            raise not_serving(error.state) from None
        except QueueFullError as error:
            raise ApiError(
                429,
                f"{error}, and the limit is {self.settings.max_queued_tokens}: wait for Retry-After seconds, add "
                "replicas, or raise --max-queued-tokens",
                "groups",
                retry_after=error.retry_after,
            ) from None
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            waits: set[asyncio.Future[Any]] = {result, gone}
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
            if gone.done():
                return None
            raise ExpiredError
        except ExpiredError:
            raise self._too_late(task, seconds) from None
        except VersionError as error:
            raise cannot_load(error) from None
        except ScoringError as error:
            raise ApiError(500, str(error)) from None
        except NotServingError as error:  # the grace period has passed
            raise not_serving(error.state) from None
        finally:
            gone.cancel()
            self.worker.cancel(task)

    def _too_late(self, task: Task, seconds: float) -> ApiError:
        loaded = self.worker.loaded
        if loaded is not None and task.version not in (None, loaded.version):
            what = f"version {task.version} was not loaded within {seconds:.3g} s, and stays wanted: ask again"
        else:
            what = f"not scored within {seconds:.3g} s: send fewer groups at a time, add replicas, or allow more time"
        return ApiError(504, what, "deadlineSeconds")

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        """Counts the request as accepted until its answer is made."""
        self._unanswered += 1
        self.metrics.open_requests.set(self._unanswered)
        self._note_idle()
        try:
            yield
        finally:
            self._unanswered -= 1
            self.metrics.open_requests.set(self._unanswered)
            self._note_idle()


async def encode(answer: LogprobsAnswer, asked: LogprobsRequest, media_type: str) -> bytes:
    """The body of an answer; large ones take long enough to be kept off the event loop."""
    return await asyncio.to_thread(encode_answer, answer, asked.groups, media_type)


def not_serving(state: State) -> ApiError:
    """The answer of a server that takes no request now."""
    return ApiError(503, f"the server is {state.value}: try again", retry_after=5 if state is State.LOADING else 1)


def cannot_load(error: VersionError) -> ApiError:
    """The answer to who wants a version that cannot be had: 503 where the same request can succeed later."""
    status = {Refusal.UNKNOWN: 409, Refusal.BAD: 422, Refusal.UNAVAILABLE: 503}[error.refusal]
    return ApiError(status, str(error), error.field, retry_after=2 if status == 503 else None)


async def _disconnected(request: Request) -> None:
    """Returns when the client has closed the connection. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
