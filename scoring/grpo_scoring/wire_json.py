"""The JSON encoding: ``{"groups": [{"prompt": [1, 2], "completions": [[3, 4], [5]]}], "temperature": 0.7}``.

The answer nests as the request does: ``{"logprobs": [[[-0.1, -2.3], [-1.7]]], "model": ..., "version": ...}``.
A float32 is written with the digits that give the same float32 back.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from grpo_scoring.groups import Group, offsets
from grpo_scoring.messages import (
    MAX_COMPLETIONS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    LogprobsAnswer,
    LogprobsRequest,
    WireError,
)

TokenId = Annotated[int, Field(ge=0, lt=2**31)]

# Only described here: LogprobsRequest checks them, for both encodings in the same words.
_Temperature = Annotated[
    float, WithJsonSchema({"type": "number", "minimum": MIN_TEMPERATURE, "maximum": MAX_TEMPERATURE})
]
_Seconds = Annotated[float, WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]

_PROBLEMS = {
    "extra_forbidden": "is not a known field: remove it, or correct its name",
    "missing": "is missing",
    "too_short": "is empty: it needs at least one entry",
    "too_long": f"has more than {MAX_COMPLETIONS} entries: send fewer groups at a time",
}
"""By pydantic's type of error, what is wrong where its own words do not say what to do."""
LONGEST_FIELD = 128
"""Characters of a field's path: unknown names come from the client, and go into the log."""


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, frozen=True)


class JsonGroup(_Message):
    """One prompt and the completions sampled from it, as token ids."""

    prompt: list[TokenId] = Field(min_length=1, description="Token ids of the prompt.")
    completions: list[list[TokenId]] = Field(
        min_length=1, max_length=MAX_COMPLETIONS, description="Token ids of each completion."
    )


class JsonRequest(_Message):
    """Asks for the log-probability of every completion token."""

    groups: list[JsonGroup] = Field(max_length=MAX_COMPLETIONS, json_schema_extra={"minItems": 1})
    temperature: _Temperature = Field(default=1.0, description="Logits are divided by it.")
    deadline_seconds: _Seconds | None = Field(
        default=None, description="After so many seconds the answer is worthless."
    )
    version: str | None = Field(default=None, description="The wanted version; null takes what is loaded.")
    version_path: str | None = Field(
        default=None, description="Folder of the wanted version, below the root for versions."
    )


class JsonAnswer(_Message):
    """The log-probabilities, nested as the request is: group, completion, token."""

    logprobs: list[list[list[float]]]
    model: str
    version: str


def encode_request(request: LogprobsRequest) -> bytes:
    """Encodes a request."""
    message = JsonRequest(
        groups=[
            JsonGroup(prompt=group.prompt.tolist(), completions=[ids.tolist() for ids in group.completions])
            for group in request.groups
        ],
        temperature=request.temperature,
        deadline_seconds=request.deadline_seconds,
        version=request.version,
        version_path=request.version_path,
    )
    return message.model_dump_json(by_alias=True, exclude_none=True).encode()


def decode_request(body: bytes) -> LogprobsRequest:
    """Decodes a request. Raises WireError."""
    try:
        message = JsonRequest.model_validate_json(body, by_name=False)
    except ValidationError as error:
        raise wire_error(error) from None
    return LogprobsRequest(
        groups=[Group.of(group.prompt, group.completions) for group in message.groups],
        temperature=message.temperature,
        deadline_seconds=message.deadline_seconds,
        version=message.version,
        version_path=message.version_path,
    )


def encode_answer(answer: LogprobsAnswer, groups: Sequence[Group]) -> bytes:
    """Encodes an answer to ``groups``."""
    ends = iter(itertools.pairwise(answer.offsets.tolist()))
    message = JsonAnswer(
        logprobs=[[answer.logprobs[slice(*next(ends))].tolist() for _ in group.completions] for group in groups],
        model=answer.model,
        version=answer.version,
    )
    return message.model_dump_json().encode()


def decode_answer(body: bytes, groups: Sequence[Group]) -> LogprobsAnswer:
    """Decodes an answer to ``groups``. Raises WireError."""
    try:
        message = JsonAnswer.model_validate_json(body)
    except ValidationError as error:
        raise wire_error(error) from None
    got, asked = [len(group) for group in message.logprobs], [len(group.completions) for group in groups]
    if got != asked:
        raise WireError("logprobs", f"has groups of {got} completions where {asked} were asked for")
    completions = [completion for group in message.logprobs for completion in group]
    with np.errstate(over="ignore"):  # 1e300 becomes infinity, which LogprobsAnswer refuses
        values = np.asarray(list(itertools.chain.from_iterable(completions)), dtype=np.float32)
    return LogprobsAnswer(
        logprobs=values,
        offsets=offsets([len(completion) for completion in completions]),
        model=message.model,
        version=message.version,
    )


def wire_error(error: ValidationError) -> WireError:
    """The first of pydantic's errors, as a path: ``groups[2].completions[0][7]``."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return WireError(path.lstrip(".")[:LONGEST_FIELD] or "body", what_is_wrong(first))


def what_is_wrong(error: ErrorDetails) -> str:
    """The sentence of one of pydantic's errors, which follows the field's name."""
    return _PROBLEMS.get(error["type"], error["msg"])
