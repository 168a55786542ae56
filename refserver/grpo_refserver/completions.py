"""``/v1/completions`` and its relatives, for trainers that score by a vLLM server: same requests, same answers.

They read ``choices[i].prompt_logprobs``: a list with null for the first token and {token id: log-probability} for
each other. Errors are in OpenAI's shape, and the bearer token is the client's ``api_key``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from grpo_scoring.groups import Group, Ids
from grpo_scoring.messages import (
    MAX_COMPLETIONS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    LogprobsAnswer,
    LogprobsRequest,
    WireError,
)
from grpo_scoring.wire_json import LONGEST_FIELD, what_is_wrong
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from grpo_refserver import completion_answers as answers
from grpo_refserver import openai_schemas as schemas
from grpo_refserver.errors import ApiError
from grpo_refserver.prefixes import SharedPrefixes
from grpo_refserver.request_log import CLIENT_GONE, recorded
from grpo_refserver.service import Service
from grpo_refserver.worker import State

Body = TypeVar("Body", bound=BaseModel)

_SCORES_ONLY = "this server scores given tokens and generates none"
_REMEDIES = {
    "max_tokens": f"{_SCORES_ONLY}: send max_tokens 0, or 1 where the client insists",
    "n": f"{_SCORES_ONLY}: leave n at 1",
    "best_of": f"{_SCORES_ONLY}: leave best_of at 1",
    "stream": "the answer comes in one piece: leave stream false",
    "prompt": "must be a list of token ids or a list of such lists, none of them empty; text is not taken, as this "
    "server does not tokenize",
    "prompt_logprobs": "the given tokens are scored and no alternatives to them: send prompt_logprobs 0",
    "logprobs": "the given tokens are scored and no alternatives to them: send logprobs 0, with echo",
    "temperature": f"must be 0, which leaves the logits as they are, or from {MIN_TEMPERATURE} to {MAX_TEMPERATURE:g}",
}
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's shape; what is invalid is 400, as its clients expect."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, its errors translated."""
        handle = super().get_route_handler()

        async def translated(request: Request) -> Response:
            try:
                return await handle(request)
            except ApiError as error:
                return _error(error)

        return translated


def router(service: Service) -> APIRouter:
    """The routes that need the token."""
    result = APIRouter(tags=["for other trainers"], route_class=OpenAIRoute)
    began = int(time.time())

    @result.post(
        "/v1/completions",
        responses={200: {"model": schemas.Completion}, **_ERRORS},
        openapi_extra=schemas.json_schema_of(schemas.CompletionRequest),
    )
    async def completions(request: Request) -> Response:
        """Scores prompts, in the shape of vLLM's and OpenAI's completions. Nothing is generated."""
        async with recorded(request, service.metrics) as fields:
            asked = await _receive(service, request, schemas.CompletionRequest)
            if asked.prompt_logprobs is None and not (asked.echo and asked.logprobs is not None):
                raise ApiError(
                    400, f"{_SCORES_ONLY}: ask for prompt_logprobs, or for echo with logprobs", "prompt_logprobs"
                )
            several = isinstance(asked.prompt[0], list)
            prompts = [_ids(ids) for ids in (asked.prompt if several else [asked.prompt])]
            names = [f"prompt[{index}]" for index in range(len(prompts))] if several else ["prompt"]
            scored = await _score(service, request, prompts, asked, names, fields)
            if scored is None:
                return _gone(fields)
            return _json(await asyncio.to_thread(answers.completion, asked, prompts, *scored))

    @result.post(
        "/inference/v1/generate",
        responses={200: {"model": schemas.Generated}, **_ERRORS},
        openapi_extra=schemas.json_schema_of(schemas.GenerateRequest),
    )
    async def generate(request: Request) -> Response:
        """Scores one sequence, in the shape of vLLM's tokens-in, tokens-out route. Nothing is generated."""
        async with recorded(request, service.metrics) as fields:
            asked = await _receive(service, request, schemas.GenerateRequest)
            prompts = [_ids(asked.token_ids)]
            scored = await _score(service, request, prompts, asked, ["token_ids"], fields)
            if scored is None:
                return _gone(fields)
            return _json(await asyncio.to_thread(answers.generated, asked, prompts, *scored))

    def card() -> schemas.ModelCard:
        loaded = service.loaded()
        return schemas.ModelCard(
            id=loaded.name, root=loaded.name, created=began, max_model_len=loaded.max_sequence_length
        )

    @result.get("/v1/models", responses=_ERRORS)
    async def models() -> schemas.ModelList:
        """The served model."""
        return schemas.ModelList(data=[card()])

    @result.get("/v1/models/{model:path}", responses=_ERRORS | {404: _NOT_FOUND})
    async def model(model: str) -> schemas.ModelCard:
        """The served model, by its id."""
        _check_model(service, model)
        return card()

    return result


def health(service: Service) -> APIRouter:
    """vLLM's health route, which needs no token."""
    result = APIRouter(tags=["for other trainers"])

    @result.get("/health", response_class=Response, responses={503: {"description": "Not ready."}})
    async def ready() -> Response:
        """200 once the model is loaded, without a body: TRL's client waits for it."""
        return Response(status_code=200 if service.state is State.READY else 503)

    return result


async def _receive(service: Service, request: Request, schema: type[Body]) -> Body:
    """Reads and checks a body. Raises ApiError."""
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(415, "Content-Type must be application/json", "Content-Type")
    service.loaded()
    body = await service.read(request)
    try:
        return await asyncio.to_thread(schema.model_validate_json, body)
    except ValidationError as error:
        raise _invalid(error.errors(include_url=False, include_context=False, include_input=False)[0]) from None


def _invalid(first: ErrorDetails) -> ApiError:
    names = [str(part) for part in first["loc"]]
    if not names:
        return ApiError(400, f"the body does not parse: {first['msg']}", "body")
    field = (names[-1] if names[0] == "sampling_params" else names[0])[:LONGEST_FIELD]
    remedy = None if first["type"] == "extra_forbidden" else _REMEDIES.get(field)
    if first["type"] == "missing" and field == "prompt_logprobs":
        remedy = f"{_SCORES_ONLY}: ask for prompt_logprobs"
    return ApiError(400, f"{field}: {remedy or what_is_wrong(first)}", field)


async def _score(
    service: Service,
    request: Request,
    prompts: Sequence[Ids],
    asked: schemas.CompletionRequest | schemas.GenerateRequest,
    names: Sequence[str],
    fields: dict[str, Any],
) -> tuple[SharedPrefixes, LogprobsAnswer] | None:
    """Scores prompts, which the request has by these names; None if the client went away. Raises ApiError."""
    if asked.model is not None:
        _check_model(service, asked.model)
    sampling = asked.sampling_params if isinstance(asked, schemas.GenerateRequest) else asked
    if len(prompts) > MAX_COMPLETIONS:
        problem = f"there are {len(prompts)} prompts, this server takes {MAX_COMPLETIONS} at a time: send fewer"
        raise ApiError(413, problem, "prompt")
    shared = await asyncio.to_thread(SharedPrefixes.of, prompts, share=service.loaded().shares_prompts)
    fields |= {
        "groups": len(shared.groups),
        "completions": len(prompts),
        "tokens": sum(group.tokens for group in shared.groups),
    }
    try:
        wanted = LogprobsRequest(shared.groups, temperature=sampling.temperature or 1.0)
    except WireError as error:
        raise ApiError(400, f"{error.field}: {_REMEDIES.get(error.field, error.problem)}", error.field) from None
    try:
        await asyncio.to_thread(service.check, wanted)
    except ApiError as error:
        raise _of_prompts(error, service, prompts, names) from None
    answer = await service.score(request, wanted)
    if answer is None:
        return None
    fields["version"] = answer.version
    return shared, answer


def _of_prompts(error: ApiError, service: Service, prompts: Sequence[Ids], names: Sequence[str]) -> ApiError:
    """What is wrong with groups, as an error of the prompts they were made of."""
    if error.problem.status == 413:
        return ApiError(413, error.problem.detail, names[0].partition("[")[0])
    for name, ids in zip(names, prompts, strict=True):
        try:
            service.check(LogprobsRequest([Group(ids, (ids[:0],))]))
        except ApiError as own:
            if own.problem.status == 422:
                place = (own.problem.field or "").removeprefix("groups[0]").removeprefix(".prompt")
                return ApiError(400, own.problem.detail, name + place)
    return error


def _check_model(service: Service, model: str) -> None:
    served = service.loaded().name
    if model != served:
        raise ApiError(404, f"there is no model {model[:200]!r} here, {served!r} is served: see /v1/models", "model")


def _ids(values: Any) -> Ids:
    return np.asarray(values, dtype=np.int32)


def _gone(fields: dict[str, Any]) -> Response:
    fields["status"] = CLIENT_GONE
    return Response(status_code=CLIENT_GONE)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _error(error: ApiError) -> Response:
    problem = error.problem
    status = problem.status
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = {401: "invalid_api_key", 404: "model_not_found", 413: "request_too_large", 429: "queue_full"}.get(status)
    detail = {"message": problem.detail, "type": kind, "param": problem.field, "code": code}
    return JSONResponse({"error": detail}, status, error.headers)


_MEANINGS = {
    400: "The body does not parse, a field is wrong, or tokens to be generated are asked for.",
    401: "The bearer token (the client's api_key) is missing or wrong.",
    404: "Another model is named than the one served.",
    408: "The body did not arrive in time.",
    413: "The body or the number of tokens is over the limit: send fewer prompts at a time.",
    415: "Content-Type is not JSON.",
    429: "Too many tokens wait; try again after Retry-After seconds.",
    500: "The forward failed.",
    503: "Loading or shutting down; try again after Retry-After seconds.",
    504: "The request's deadline passed.",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "model": schemas.OpenAIError} for status, text in _MEANINGS.items()
}
_NOT_FOUND = {
    **_ERRORS[404],
    # An id with a line break in it meets no route at all.
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
}
