"""Answers of a real HTTP server; the API server itself is in the integration tests."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web
from grpo_operator.kubernetes import kinds
from grpo_operator.kubernetes.client import ApiError, Client
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration


def serve(handler: Callable[[web.Request], Awaitable[web.Response]], calls: Callable[[Client], Awaitable[Any]]) -> Any:
    """Run `calls` with a client of a server that answers everything by `handler`."""

    async def run() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        configuration = Configuration(host=f"http://127.0.0.1:{port}")
        client = Client(ApiClient(configuration), timeout=5)
        try:
            return await calls(client)
        finally:
            await client.close()
            await runner.cleanup()

    return asyncio.run(run())


def test_an_error_keeps_what_the_api_server_said():
    async def refuse(_: web.Request) -> web.Response:
        details = {"causes": [{"reason": "NamespaceTerminating", "message": "it goes"}]}
        body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no", "details": details}
        return web.json_response(body, status=403)

    with pytest.raises(ApiError, match="no") as error:
        serve(refuse, lambda client: client.list(kinds.POD, "lab"))
    assert (error.value.status, error.value.reason) == (403, "Forbidden")
    assert error.value.causes == ("NamespaceTerminating",)


@pytest.mark.parametrize("text", ["<html>bad gateway</html>", "[]", ""])
def test_an_answer_that_is_no_status_is_shown(text: str):
    async def fail(_: web.Request) -> web.Response:
        return web.Response(status=502, text=text)

    with pytest.raises(ApiError, match="HTTP 502"):
        serve(fail, lambda client: client.list(kinds.POD, "lab"))


def test_what_does_not_exist_is_none():
    async def missing(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "reason": "NotFound", "message": "not found"}, status=404)

    assert serve(missing, lambda client: client.get(kinds.SECRET, "lab", "x")) is None
    assert serve(missing, lambda client: client.serves(kinds.GRPO_JOB)) is False
    assert serve(missing, lambda client: client.delete(kinds.JOB, "lab", "x", "uid")) is None


def test_an_empty_list_may_come_as_null():
    """As the API server answers a list of metadata with nothing in it."""

    async def nothing(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": None})

    assert serve(nothing, lambda client: client.list(kinds.GRPO_JOB, metadata_only=True)) == []


def test_a_long_list_is_read_page_by_page():
    asked: list[str | None] = []

    async def pages(request: web.Request) -> web.Response:
        after = request.query.get("continue")
        asked.append(after)
        number = int(after or 0)
        meta = {"continue": str(number + 1)} if number < 2 else {}
        return web.json_response({"metadata": meta, "items": [{"number": number}]})

    items = serve(pages, lambda client: client.list(kinds.POD, "lab", labels="a=b"))
    assert [item["number"] for item in items] == [0, 1, 2]
    assert asked == [None, "1", "2"]


def test_apply_sends_the_manifest_server_side():
    seen: dict[str, Any] = {}

    async def take(request: web.Request) -> web.Response:
        seen.update(method=request.method, path=request.path, query=dict(request.query))
        seen.update(type=request.content_type, body=json.loads(await request.text()))
        return web.json_response(seen["body"])

    manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a", "namespace": "lab"},
        "spec": {"x": None},
    }
    serve(take, lambda client: client.apply(manifest))
    assert seen["method"] == "PATCH"
    assert seen["path"] == "/api/v1/namespaces/lab/services/a"
    assert seen["query"] == {"fieldManager": "grpo-operator", "force": "true"}
    assert seen["type"] == "application/apply-patch+yaml"
    assert seen["body"]["metadata"] == manifest["metadata"]


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("../../team-b/secrets/prod-db", "..%2F..%2Fteam-b%2Fsecrets%2Fprod-db"),
        ("..%2Fpods", "..%252Fpods"),
        ("%2e%2e", "%252e%252e"),
        ("a?b=c#d", "a%3Fb=c%23d"),
    ],
)
def test_a_name_stays_one_segment_of_the_path(name: str, sent: str):
    seen: list[str] = []

    async def take(request: web.Request) -> web.Response:
        seen.append(request.raw_path)
        return web.json_response({})

    serve(take, lambda client: client.get(kinds.SECRET, "team-a", name))
    (path,) = seen
    segments = path.split("/")
    assert segments[:-1] == ["", "api", "v1", "namespaces", "team-a", "secrets"]
    # What the API server makes of it is the name again, and nothing else.
    assert unquote(segments[-1]) == name
    assert segments[-1] == sent


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_a_path_has_no_part_that_leads_elsewhere(part: str):
    with pytest.raises(ValueError, match="API path"):
        kinds.SECRET.path("lab", part)
    with pytest.raises(ValueError, match="API path"):
        kinds.SECRET.path(part)
