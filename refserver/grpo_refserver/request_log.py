"""One log line and one count per scoring request, a line per request without the token, and the ids of requests."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from grpo_refserver.errors import ApiError
from grpo_refserver.metrics import CLIENT_GONE, Metrics

__all__ = ["CLIENT_GONE", "RequestIds", "recorded"]

log = logging.getLogger("grpo_refserver.requests")

HEADER = "X-Request-ID"
_LONGEST_ROUTE = 128
"""Characters; a client without the token can ask for a model of any name."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}", re.ASCII)


class RequestIds:
    """Gives every request an id, the client's own ``X-Request-ID`` where it fits a log line, and sends it back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection, as ASGI asks."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        identity = given if _ID.fullmatch(given) else uuid.uuid4().hex[:16]
        scope.setdefault("state", {})["request_id"] = identity

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = identity
            await send(message)

        await self._app(scope, receive, answer)


@asynccontextmanager
async def recorded(request: Request, metrics: Metrics) -> AsyncIterator[dict[str, Any]]:
    """Counts and logs what happens inside: ``request id=… route=… … wait_ms=3 forward_ms=30 status=200 ms=41``.

    Gives the line's fields, to be filled: never token ids, log-probabilities or headers. ``status`` is 200 unless
    an ApiError says otherwise or it is set inside. Requests that only look (GET) are not counted.
    """
    begun = time.monotonic()
    fields: dict[str, Any] = {
        "id": getattr(request.state, "request_id", "-"),
        "route": request.url.path[:_LONGEST_ROUTE],
        "client": request.client.host if request.client else "-",
    }
    status = 500
    try:
        yield fields
        status = fields.pop("status", 200)
    except ApiError as error:
        status = error.problem.status
        if error.problem.field:
            fields["field"] = error.problem.field
        raise
    finally:
        if request.method == "POST":
            metrics.answered(status, fields.get("field"))
        fields |= getattr(request.state, "timing", {})
        fields |= {"status": status, "ms": round(1000 * (time.monotonic() - begun))}
        log.log(logging.INFO if status == 200 else logging.WARNING, "request", extra=fields)
