"""What a dialect is: how a server is asked for log-probabilities, and how its answer is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import numpy as np
from grpo_scoring.groups import Group
from numpy.typing import NDArray

from grpo_trainer.reference.info import ReferenceInfo
from grpo_trainer.reference.transport import Call
from grpo_trainer.reference.version import ReferenceVersion

Logprobs = list[NDArray[np.float32]]
"""One array per completion, (C_i,)."""


class Ask(Protocol):
    """Sends one call, with the deadline and the retries of who asks."""

    def __call__(self, call: Call, *, passes: frozenset[int] = frozenset()) -> httpx.Response:
        """Return the answer: 200, or one of `passes`."""
        ...


ROW_REQUEST_TOKENS = 16384
"""Most tokens of one request to a server that answers in JSON with some 80 bytes for each: about 1.3 MB."""


class DialectError(ValueError):
    """An answer is not what the engine's servers answer; the message says in which way."""


@dataclass(frozen=True, slots=True)
class Scores:
    """A server's answer to one request."""

    logprobs: Logprobs
    version: str | None
    """Name of the weights that made it, as in `ReferenceInfo.version`; None: nothing had to be computed."""


class Dialect(Protocol):
    """How one engine is spoken to. Pure but for `info`, `has_token` and `tokenize`, which ask."""

    engine: str
    has_versions: bool
    """Whether a request can name the weights that shall score it."""
    scales_temperature: bool
    """Whether log-probabilities can be asked for at another temperature than 1."""
    prompt_per_row: bool
    """Whether a prompt is sent once per completion (requests are cut accordingly)."""
    max_request_tokens: int | None
    """Most tokens of a request where the server sets no limit."""

    def info(self, ask: Ask) -> ReferenceInfo:
        """Return what the server tells of itself. Raises DialectError."""
        ...

    def has_token(self, ask: Ask, token: int) -> bool:
        """Whether the id is in the vocabulary; asked only where `info` does not tell its size. Raises DialectError."""
        ...

    def tokenize(self, ask: Ask, text: str) -> list[int] | None:
        """The text's ids, without special tokens; None where the server does not tell. Raises DialectError."""
        ...

    def encode(
        self, groups: Sequence[Group], *, temperature: float, version: ReferenceVersion | None, seconds: float
    ) -> Call:
        """Return the request that scores the groups; it is worthless after `seconds`."""
        ...

    def decode(self, response: httpx.Response, groups: Sequence[Group]) -> Scores:
        """Read the answer to `encode`. Raises DialectError."""
        ...

    def describe(self, response: httpx.Response) -> str:
        """What an error tells, as a sentence."""
        ...


def rows(groups: Sequence[Group]) -> list[tuple[Group, NDArray[np.int32]]]:
    """Completions with at least one token, each with its group, in order: what servers that score rows are sent."""
    return [(group, completion) for group in groups for completion in group.completions if completion.size]


def in_order(groups: Sequence[Group], scored: Sequence[NDArray[np.float32]]) -> Logprobs:
    """Answers to `rows(groups)` → one array per completion; those without tokens get an empty one."""
    answers = iter(scored)
    return [
        next(answers) if completion.size else np.zeros(0, np.float32)
        for group in groups
        for completion in group.completions
    ]


def finite(values: list[float]) -> NDArray[np.float32]:
    """Log-probabilities as an array. Raises DialectError where one is not finite (vLLM writes -9999 for -inf)."""
    array = np.asarray(values, dtype=np.float32)
    if not np.isfinite(array).all() or (array <= -9999).any():
        raise DialectError("a log-probability is NaN or infinite: the model, its dtype or its quantization is broken")
    return array


def json_object(response: httpx.Response) -> dict[str, Any]:
    """The body as an object. Raises DialectError."""
    content = json_value(response)
    if not isinstance(content, dict):
        raise DialectError(f"{response.request.url.path} answers no JSON object")
    return content


def json_value(response: httpx.Response) -> Any:
    """The body. Raises DialectError where it is no JSON."""
    try:
        return response.json()
    except ValueError:
        raise DialectError(f"{response.request.url.path} answers no JSON") from None


def error_message(response: httpx.Response) -> str:
    """The words of an OpenAI-like error body, `{"error": {"message": …}}`; else the body's beginning."""
    try:
        error = response.json()["error"]
        return " ".join(str(error["message"] if isinstance(error, dict) else error).split())
    except (ValueError, KeyError, TypeError):
        return " ".join(response.text[:300].split()) or "no body"
