"""The wire format of ``POST /v1/logprobs``.

JSON (``application/json``) is for people, safetensors (``application/x-safetensors``) for the trainer: flat
int32 ids and offsets in, flat float32 log-probabilities out, nothing padded, no pickle. Both carry the same
messages (``messages.py``). Whatever does not decode raises WireError, which names the field, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from grpo_scoring import wire_json, wire_safetensors
from grpo_scoring.groups import Group, completion_offsets
from grpo_scoring.messages import LogprobsAnswer, LogprobsRequest, WireError, check_answers
from grpo_scoring.problem import PROBLEM, Problem, decode_problem, encode_problem

__all__ = [
    "JSON",
    "MEDIA_TYPES",
    "PROBLEM",
    "SAFETENSORS",
    "LogprobsAnswer",
    "LogprobsRequest",
    "Problem",
    "WireError",
    "decode_answer",
    "decode_problem",
    "decode_request",
    "encode_answer",
    "encode_problem",
    "encode_request",
]

JSON = "application/json"
SAFETENSORS = "application/x-safetensors"

_CODECS: dict[str, ModuleType] = {SAFETENSORS: wire_safetensors, JSON: wire_json}
MEDIA_TYPES = tuple(_CODECS)


def encode_request(request: LogprobsRequest, media_type: str = SAFETENSORS) -> bytes:
    """Encodes a request. Raises WireError for an unknown media type."""
    body: bytes = _codec(media_type).encode_request(request)
    return body


def decode_request(body: bytes, media_type: str) -> LogprobsRequest:
    """Decodes and checks a request. Raises WireError."""
    request: LogprobsRequest = _codec(media_type).decode_request(body)
    return request


def encode_answer(answer: LogprobsAnswer, groups: Sequence[Group], media_type: str = SAFETENSORS) -> bytes:
    """Encodes an answer to ``groups``. Raises WireError where it does not answer them."""
    check_answers(answer, completion_offsets(groups))
    body: bytes = _codec(media_type).encode_answer(answer, groups)
    return body


def decode_answer(body: bytes, media_type: str, groups: Sequence[Group]) -> LogprobsAnswer:
    """Decodes an answer and checks that it answers ``groups``, token for token. Raises WireError."""
    answer: LogprobsAnswer = _codec(media_type).decode_answer(body, groups)
    check_answers(answer, completion_offsets(groups))
    return answer


def _codec(media_type: str) -> ModuleType:
    try:
        return _CODECS[media_type]
    except KeyError:
        raise WireError("Content-Type", f"must be one of {', '.join(MEDIA_TYPES)}, got {media_type}") from None
