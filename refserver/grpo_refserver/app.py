"""The routes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi_offline import FastAPIOffline

from grpo_refserver import completions, reload, schemas
from grpo_refserver.auth import TokenFile
from grpo_refserver.errors import ApiError, add_handlers
from grpo_refserver.media_types import media_types
from grpo_refserver.request_log import CLIENT_GONE, RequestIds, recorded
from grpo_refserver.service import Service, encode
from grpo_refserver.worker import State

DESCRIPTION = "Log-probabilities of given completions under a frozen reference model, for GRPO's KL term."


def create_app(service: Service, token: TokenFile | None) -> FastAPI:
    """The application. Without a token every route is open."""

    async def authorize(
        request: Request, authorization: Annotated[str | None, Header(include_in_schema=False)] = None
    ) -> None:
        if token is not None and not token.allows(authorization):
            async with recorded(request, service.metrics):
                raise ApiError(401, "send the job's token as 'Authorization: Bearer <token>'", "Authorization")

    # Offline: /docs brings its scripts along, as clusters often have no internet.
    app = FastAPIOffline(title="GRPO reference server", description=DESCRIPTION, redoc_url=None)
    add_handlers(app)
    app.include_router(_scoring(service), prefix="/v1", dependencies=[Depends(authorize)])
    app.include_router(reload.router(service), dependencies=[Depends(authorize)])
    app.include_router(completions.router(service), dependencies=[Depends(authorize)])
    app.include_router(completions.health(service))
    app.include_router(_operations(service))
    app.add_middleware(RequestIds)
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas.components())
        return document

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _scoring(service: Service) -> APIRouter:
    router = APIRouter(tags=["scoring"])

    @router.post("/logprobs", responses=schemas.RESPONSES, openapi_extra=schemas.REQUEST_BODY)
    async def logprobs(request: Request) -> Response:
        """Log-probabilities of every completion token. Content-Type and Accept choose JSON or safetensors."""
        async with recorded(request, service.metrics) as fields:
            sent, wanted = media_types(request.headers)
            asked = await service.receive(request, sent)
            fields |= {
                "groups": len(asked.groups),
                "completions": sum(len(group.completions) for group in asked.groups),
                "tokens": sum(group.tokens for group in asked.groups),
            }
            answer = await service.score(request, asked)
            if answer is None:
                fields["status"] = CLIENT_GONE
                return Response(status_code=CLIENT_GONE)
            fields["version"] = answer.version
            return Response(await encode(answer, asked, wanted), media_type=wanted)

    @router.get("/info", response_model_by_alias=True)
    async def info() -> schemas.Info:
        """What serves here, for the trainer to compare at its start."""
        loaded, settings = service.loaded(), service.settings
        return schemas.Info(
            model=loaded.name,
            revision=settings.revision,
            version=loaded.version,
            dtype=loaded.dtype,
            device=loaded.device,
            vocab_size=loaded.vocab_size,
            tokenizer_hash=loaded.tokenizer_hash,
            max_sequence_length=loaded.max_sequence_length,
            max_request_tokens=settings.request_tokens,
            max_request_bytes=settings.request_bytes,
            max_batch_tokens=settings.max_batch_tokens,
            max_queued_tokens=settings.max_queued_tokens,
            request_timeout_seconds=settings.request_timeout_seconds,
            deterministic=settings.deterministic,
            shares_prompts=loaded.shares_prompts,
            versions_root=str(settings.versions_root) if settings.versions_root is not None else None,
        )

    return router


def _operations(service: Service) -> APIRouter:
    router = APIRouter(tags=["operations"])

    def health(status: int) -> JSONResponse:
        return JSONResponse(schemas.Health(status=service.state.value).model_dump(), status)

    @router.get("/healthz", response_model=schemas.Health)
    async def healthz() -> JSONResponse:
        """200 while the process is of use; also during loading and long forwards."""
        return health(503 if service.state is State.FAILED else 200)

    @router.get("/readyz", response_model=schemas.Health)
    async def readyz() -> JSONResponse:
        """200 once the model is loaded and checked, until the server shuts down."""
        return health(200 if service.state is State.READY else 503)

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
