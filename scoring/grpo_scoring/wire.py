"""The wire format of ``POST /v1/logprobs``: what is asked, what is answered, and the two encodings.

JSON (``application/json``) is for people, safetensors (``application/x-safetensors``) for the trainer: flat int32
ids and offsets in, flat float32 log-probabilities out, nothing padded, no pickle. Both carry the same messages.
Whatever does not decode raises WireError, which names the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_scoring.groups import Group, Ids

JSON = "application/json"
SAFETENSORS = "application/x-safetensors"
MEDIA_TYPES = (SAFETENSORS, JSON)


class WireError(ValueError):
    """A message that cannot be decoded (or must not be encoded).

    Attributes:
        field: what is wrong, as a path of the message: ``groups[2].prompt``, ``completion_offsets``, ``temperature``.
        problem: what is wrong with it, and what is right.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(frozen=True)
class LogprobsRequest:
    """Asks for the log-probability of every completion token.

    Attributes:
        groups: at least one.
        temperature: > 0, finite; logits are divided by it.
        deadline_seconds: > 0; the answer is worthless to the client after so many seconds from now.
        version: the wanted version of the reference; None takes what the server has.
        version_path: the folder (below the server's versions root) to load ``version`` from.
    """

    groups: Sequence[Group]
    temperature: float = 1.0
    deadline_seconds: float | None = None
    version: str | None = None
    version_path: str | None = None


@dataclass(frozen=True, eq=False)
class LogprobsAnswer:
    """The log-probabilities, end to end in the order of the request's groups, completions and tokens.

    Attributes:
        logprobs: float32, (ΣC,), finite.
        offsets: int32, (M + 1,): completion m is ``logprobs[offsets[m]:offsets[m + 1]]``.
        model: name of the model that scored.
        version: its version.
    """

    logprobs: NDArray[np.float32]
    offsets: Ids
    model: str
    version: str


def encode_request(request: LogprobsRequest, media_type: str = SAFETENSORS) -> bytes:
    """Encodes a request. Raises ValueError for an unknown media type."""
    return _codec(media_type).encode_request(request)


def decode_request(body: bytes, media_type: str) -> LogprobsRequest:
    """Decodes and checks a request. Raises WireError."""
    return _codec(media_type).decode_request(body)


def encode_answer(answer: LogprobsAnswer, groups: Sequence[Group], media_type: str = SAFETENSORS) -> bytes:
    """Encodes an answer to ``groups``. Raises WireError where a value is not finite (JSON has no NaN)."""
    return _codec(media_type).encode_answer(answer, groups)


def decode_answer(body: bytes, media_type: str, groups: Sequence[Group]) -> LogprobsAnswer:
    """Decodes an answer and checks that it answers ``groups``: as many completions, of the same lengths. Raises WireError."""
    return _codec(media_type).decode_answer(body, groups)
