"""Rank 0 over real HTTP."""

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from grpo_api.progress import Progress
from grpo_operator.kubernetes.progress import ask, rank_zero

GOOD = Progress(attempt=1, phase="training", step=3, total_steps=5).model_dump_json(by_alias=True)


def pod(attempt: int, index: int = 0, phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"demo-trainer-{attempt}-{index}",
            "labels": {"grpo.dev/component": "trainer", "grpo.dev/attempt": str(attempt)},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "status": {"phase": phase, "podIP": "127.0.0.1", **status},
    }


def answer(status: int, text: str, delay: float = 0) -> Progress | None:
    async def handle(_: web.Request) -> web.Response:
        await asyncio.sleep(delay)
        return web.Response(status=status, text=text)

    async def run() -> Progress | None:
        app = web.Application()
        app.router.add_get("/progress", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with aiohttp.ClientSession() as session:
                return await ask(session, pod(0), runner.addresses[0][1], 0.5)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def test_an_answer():
    progress = answer(200, GOOD)
    assert progress is not None
    assert (progress.attempt, progress.step, progress.total_steps) == (1, 3, 5)


@pytest.mark.parametrize(
    ("status", "text"), [(503, GOOD), (200, "starting"), (200, '{"step": 1}'), (200, GOOD + " " * 100_000)]
)
def test_what_is_no_progress_is_none(status: int, text: str):
    assert answer(status, text) is None


def test_a_rank_that_does_not_answer_in_time():
    assert answer(200, GOOD, delay=5) is None


def test_a_rank_that_nobody_listens_on():
    async def run() -> Progress | None:
        async with aiohttp.ClientSession() as session:
            return await ask(session, pod(0), 9, 0.5)

    assert asyncio.run(run()) is None


def test_which_pod_is_asked():
    newest = pod(2)
    assert rank_zero([pod(1), newest, pod(2, index=1)]) == newest
    assert rank_zero([pod(0, phase="Pending"), pod(1, podIP="")]) is None
    assert rank_zero([]) is None
