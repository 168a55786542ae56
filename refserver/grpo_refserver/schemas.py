"""What the routes answer beside log-probabilities, and the OpenAPI description of ``/v1/logprobs``."""

from __future__ import annotations

from typing import Any, Literal

from grpo_scoring.problem import PROBLEM, ProblemBody
from grpo_scoring.wire import JSON, SAFETENSORS
from grpo_scoring.wire_json import JsonAnswer, JsonRequest
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from grpo_refserver.openai_schemas import CompletionRequest, GenerateRequest


class Info(BaseModel):
    """What serves here: a trainer compares it with its own before the first step."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    engine: Literal["transformers"] = "transformers"
    model: str = Field(description="Hub id or path the model was loaded from.")
    revision: str | None = Field(description="Revision asked for at the hub.")
    version: str = Field(description="Version of the reference that is loaded.")
    dtype: str = Field(description="Type of the weights.")
    device: str
    vocab_size: int = Field(description="Token ids must be below.")
    tokenizer_hash: str | None = Field(description="Fingerprint of the tokenizer; null where none was found.")
    max_sequence_length: int = Field(description="Most tokens of a prompt with one completion.")
    max_request_tokens: int = Field(description="Most tokens of one request, prompts counted once.")
    max_request_bytes: int = Field(description="Most bytes of one request's body.")
    max_batch_tokens: int = Field(description="Most tokens of one forward, a shared prompt counted once.")
    max_queued_tokens: int = Field(description="Most tokens that may wait.")
    request_timeout_seconds: float = Field(description="Longest deadline a request gets.")
    deterministic: bool = Field(description="Whether each group is scored alone.")
    shares_prompts: bool = Field(description="Whether a prompt is computed once for all its completions.")
    versions_root: str | None = Field(description="Folder below which other versions may lie; null loads none.")


class ReloadRequest(BaseModel):
    """Asks for a version to be loaded."""

    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel)

    version: str = Field(description="Its name.")
    version_path: str | None = Field(
        default=None, description="Its folder, below the root for versions. What is loaded needs none."
    )
    deadline_seconds: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="How long to wait for it."
    )


class Reloaded(BaseModel):
    """The version that serves now."""

    version: str


class Health(BaseModel):
    """The state of the server."""

    status: Literal["loading", "ready", "draining", "failed"]


_BINARY = {"type": "string", "format": "binary"}
_PLACE = "#/components/schemas/{model}"


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _PLACE.format(model=model.__name__)}


def components() -> dict[str, Any]:
    """The schemas that REQUEST_BODY and RESPONSES refer to."""
    models: list[type[BaseModel]] = [
        JsonRequest,
        JsonAnswer,
        ProblemBody,
        ReloadRequest,
        CompletionRequest,
        GenerateRequest,
    ]
    _, schema = models_json_schema([(model, "validation") for model in models], ref_template=_PLACE)
    definitions: dict[str, Any] = schema["$defs"]
    return definitions


REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": _reference(JsonRequest),
                "example": {"groups": [{"prompt": [1, 2], "completions": [[3, 4], [5]]}], "temperature": 1.0},
            },
            SAFETENSORS: {"schema": _BINARY},
        },
    }
}

_PROBLEMS = {
    400: "The body does not parse.",
    401: "The bearer token is missing or wrong.",
    406: "Accept names no type this server writes.",
    408: "The body did not arrive in time.",
    409: "A version is wanted that is not loaded, and nothing says where it lies.",
    413: "The body or the number of tokens is over the limit: send fewer groups at a time.",
    415: "Content-Type is neither JSON nor safetensors.",
    422: "A field is wrong: a token id outside the vocabulary, a sequence too long, a version that cannot be served.",
    429: "Too many tokens wait; try again after Retry-After seconds.",
    500: "The forward failed.",
    503: "Loading, shutting down, or the version cannot be read yet; try again after Retry-After seconds.",
    504: "The request's deadline passed.",
}

RELOAD_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": _reference(ReloadRequest),
                "example": {"version": "step-20", "versionPath": "/output/math/5f1c/versions/step-20"},
            }
        },
    }
}

RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The log-probabilities.",
        "content": {JSON: {"schema": _reference(JsonAnswer)}, SAFETENSORS: {"schema": _BINARY}},
    },
    **{
        status: {"description": text, "content": {PROBLEM: {"schema": _reference(ProblemBody)}}}
        for status, text in _PROBLEMS.items()
    },
}

RELOAD_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: RESPONSES[status] for status in (400, 401, 408, 409, 413, 415, 422, 503, 504)
}
