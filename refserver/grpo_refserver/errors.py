"""Every error of the API as problem details (RFC 9457)."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from grpo_scoring.problem import PROBLEM, Problem, encode_problem
from starlette.exceptions import HTTPException

log = logging.getLogger(__name__)


class ApiError(Exception):
    """An answer other than 200: what is wrong, what to do, and the field it is about."""

    def __init__(self, status: int, detail: str, field: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.problem = Problem(status, detail, field)
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        if status == HTTPStatus.UNAUTHORIZED:
            self.headers["WWW-Authenticate"] = "Bearer"


def answer(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """The HTTP response of a problem."""
    return Response(encode_problem(problem), problem.status, headers, media_type=PROBLEM)


def add_handlers(app: FastAPI) -> None:
    """Makes the app answer its own errors, unknown paths and bugs alike."""

    @app.exception_handler(ApiError)
    async def known(request: Request, error: ApiError) -> Response:
        return answer(error.problem, error.headers)

    @app.exception_handler(HTTPException)
    async def routing(request: Request, error: HTTPException) -> Response:
        return answer(
            Problem(error.status_code, f"{request.method} {request.url.path}: {error.detail}"),
            dict(error.headers or {}),
        )

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        log.error("request failed", exc_info=error, extra={"path": request.url.path})
        return answer(Problem(500, f"{type(error).__name__}; the server's log has the details"))
