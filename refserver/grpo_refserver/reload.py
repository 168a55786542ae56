"""``POST /v1/reload``: loads a version before the first request that wants it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from grpo_scoring.messages import WireError, check_version, check_version_path
from grpo_scoring.wire import JSON
from grpo_scoring.wire_json import wire_error
from pydantic import ValidationError

from grpo_refserver import schemas
from grpo_refserver.errors import ApiError
from grpo_refserver.request_log import CLIENT_GONE, recorded
from grpo_refserver.service import Service


def router(service: Service) -> APIRouter:
    """The route."""
    result = APIRouter(prefix="/v1", tags=["versions"])

    @result.post(
        "/reload",
        response_model=schemas.Reloaded,
        responses=schemas.RELOAD_RESPONSES,
        openapi_extra=schemas.RELOAD_BODY,
    )
    async def reload(request: Request) -> Response:
        """Loads a version in the place of the one that serves, and answers when it does.

        It waits in the queue like a request without groups: what came before is scored first, and the old version
        serves until the swap. A version that serves already is answered at once.
        """
        async with recorded(request, service.metrics) as fields:
            asked = await _read(request, service)
            fields["version"] = asked.version
            if not await service.load(request, asked.version, asked.version_path, asked.deadline_seconds):
                fields["status"] = CLIENT_GONE
                return Response(status_code=CLIENT_GONE)
            return JSONResponse(schemas.Reloaded(version=asked.version).model_dump())

    return result


async def _read(request: Request, service: Service) -> schemas.ReloadRequest:
    """Raises ApiError."""
    if request.headers.get("content-type", JSON).partition(";")[0].strip().lower() != JSON:
        raise ApiError(415, f"Content-Type must be {JSON}", "Content-Type")
    body = await service.read(request)
    try:
        asked = schemas.ReloadRequest.model_validate_json(body)
        check_version(asked.version)
        if asked.version_path is not None:
            check_version_path(asked.version_path)
    except ValidationError as error:
        problem = wire_error(error)
        raise ApiError(400 if problem.field == "body" else 422, str(problem), problem.field) from None
    except WireError as error:
        raise ApiError(422, str(error), error.field) from None
    return asked
