import asyncio
from collections.abc import Awaitable, Callable

import pytest
from grpo_operator.kubernetes import queue as queue_module
from grpo_operator.kubernetes.queue import Key, Queue

A, B = Key("lab", "a"), Key("lab", "b")


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  (what is awaited has no event of its own)
        await asyncio.sleep(0.001)


def run(
    scenario: Callable[[Queue], Awaitable[None]],
    handle: Callable[[Key], Awaitable[float | None]],
    workers: int = 2,
) -> None:
    """Run a scenario beside a queue's workers, for ten seconds at most."""

    async def all_together() -> None:
        queue = Queue()
        work = asyncio.create_task(queue.run(handle, workers))
        try:
            await asyncio.wait_for(scenario(queue), 10)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    asyncio.run(all_together())


def test_a_key_added_often_before_it_is_handled_is_handled_once():
    handled: list[Key] = []

    async def handle(key: Key) -> None:
        handled.append(key)

    async def scenario(queue: Queue) -> None:
        for _number in range(5):
            queue.add(A)
        queue.add(B)
        assert queue.depth == 2
        await until(lambda: len(handled) == 2)

    run(scenario, handle)
    assert handled == [A, B]


def test_a_key_is_never_handled_twice_at_a_time_and_again_if_it_was_added_meanwhile():
    busy, handled, overlaps = set(), [], []
    gate = asyncio.Event()

    async def handle(key: Key) -> None:
        overlaps.append(key in busy)
        busy.add(key)
        await gate.wait()
        busy.discard(key)
        handled.append(key)

    async def scenario(queue: Queue) -> None:
        queue.add(A)
        await until(lambda: A in busy)
        queue.add(A)
        queue.add(A)
        await asyncio.sleep(0)
        gate.set()
        await until(lambda: len(handled) == 2)

    run(scenario, handle)
    assert handled == [A, A]
    assert not any(overlaps)


def test_one_key_does_not_hold_up_another():
    finished: list[Key] = []

    async def handle(key: Key) -> None:
        if key == A:
            await asyncio.Event().wait()
        finished.append(key)

    async def scenario(queue: Queue) -> None:
        queue.add(A)
        queue.add(B)
        await until(lambda: finished)

    run(scenario, handle)
    assert finished == [B]


def test_the_delay_that_a_handler_returns_brings_the_key_back():
    times: list[float] = []

    async def handle(_: Key) -> float | None:
        times.append(asyncio.get_running_loop().time())
        return 0.05 if len(times) == 1 else None

    async def scenario(queue: Queue) -> None:
        queue.add(A)
        await until(lambda: len(times) == 2)

    run(scenario, handle)
    assert times[1] - times[0] >= 0.05


def test_the_earlier_of_two_delays_counts():
    async def scenario() -> None:
        queue = Queue()
        queue.add_after(A, 60)
        queue.add_after(A, 0.01)
        queue.add_after(A, 30)
        await until(lambda: queue.depth > 0)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_failures_are_tried_again_at_growing_intervals(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(queue_module, "FIRST_RETRY", 0.001)
    tries = 0

    async def handle(_: Key) -> None:
        nonlocal tries
        tries += 1
        if tries < 6:
            raise ValueError(f"try {tries}")

    async def scenario(queue: Queue) -> None:
        queue.add(A)
        await until(lambda: tries == 6)

    run(scenario, handle)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.split("; ")[0] for line in told] == ["lab/a: ValueError: try 4", "lab/a: ValueError: try 5"]
    assert told[-1].endswith("tried again in 0.0 s")
