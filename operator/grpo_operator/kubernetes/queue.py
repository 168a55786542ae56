"""A queue of keys: each at most once in it, never handled twice at the same time, failures at growing intervals.

As the work queue of client-go: a key added while it is handled is handled again afterwards, however often it was
added. Level-triggered handling needs no more than that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

logger = logging.getLogger(__name__)

FIRST_RETRY = 0.2
LAST_RETRY = 60.0


class Key(NamedTuple):
    """One job."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Queue:
    """Keys that are to be handled, now or later. For one event loop."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}

    def add(self, key: Key) -> None:
        """Have the key handled as soon as possible."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: Key, delay: float) -> None:
        """Have the key handled after `delay` seconds, or earlier where that was asked for already."""
        loop = asyncio.get_running_loop()
        present = self._timers.get(key)
        if present is not None:
            if present.when() <= loop.time() + delay:
                return
            present.cancel()
        self._timers[key] = loop.call_later(delay, self._due, key)

    @property
    def depth(self) -> int:
        """Keys that wait to be handled."""
        return self._ready.qsize()

    async def run(self, handle: Callable[[Key], Awaitable[float | None]], workers: int) -> None:
        """Handle keys, `workers` at a time, until cancelled.

        `handle` returns the seconds after which the key is to be handled again, or None. If it raises, the key is
        handled again after a wait that doubles with each failure in a row, up to a minute.
        """
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._work(handle), name=f"reconciler {number}")

    async def _work(self, handle: Callable[[Key], Awaitable[float | None]]) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._busy.add(key)
            try:
                delay = await handle(key)
            except Exception as error:  # noqa: BLE001  (whatever it was: another try repairs it, or it is seen in the log)
                delay = self._failed(key, error)
            else:
                self._failures.pop(key, None)
            finally:
                self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            if delay is not None:
                self.add_after(key, delay)

    def _failed(self, key: Key, error: Exception) -> float:
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(FIRST_RETRY * 2.0**count, LAST_RETRY)
        # The first failures are mostly passing ones (a conflict, a restart of the API server): kept out of the log.
        level = logging.WARNING if count >= 3 else logging.DEBUG
        logger.log(
            level, "%s: %s: %s; tried again in %.1f s", key, type(error).__name__, error, delay, exc_info=count == 3
        )
        return delay

    def _due(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)
