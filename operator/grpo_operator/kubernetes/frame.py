"""kopf as the frame: its watches put keys into the queue, and its health endpoint asks the watchdog. No more.

There are no change-tracking handlers, timers or daemons, hence no annotations and no finalizer of kopf's on anything:
deleting a job, or a whole namespace, never waits for the operator.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import kopf

from . import labels
from .applied import Applied, Child
from .kinds import CLAIM, GRPO_JOB, JOB, WATCHED, Kind
from .queue import Key, Queue
from .watchdog import Watchdog

CREATED_ONCE = frozenset({JOB, CLAIM})


class Backoffs(Iterable[float]):
    """Waits between tries of a request, for ever.

    kopf's own sequence ends after a minute, and then the watch fails: an outage of the API server of an hour is to be
    sat out.
    """

    def __iter__(self) -> "itertools.chain[float]":
        return itertools.chain((0.1, 0.2, 0.5, 1, 2, 4), itertools.repeat(8.0))


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False  # events are ours
    chosen.peering.standalone = True
    # The kinds are known and the namespaces given: nothing is to be looked for, nor the right to look needed.
    chosen.scanning.disabled = True
    chosen.networking.error_backoffs = Backoffs()
    chosen.networking.connect_timeout = 10
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 320
    chosen.watching.inactivity_timeout = 90
    chosen.queueing.exit_timeout = 1
    for kind in WATCHED:
        chosen.watching.label_selectors[kind.group or "", kind.plural] = labels.JOB
    return chosen


def registry(queue: Queue, applied: Applied, watchdog: Watchdog) -> kopf.OperatorRegistry:
    """Return the handlers."""
    handlers = kopf.OperatorRegistry()

    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    def watch_is_alive(**_: Any) -> str:
        if watchdog.silent:
            raise RuntimeError(f"the watch did not tell of changes of {', '.join(map(str, watchdog.silent))}")
        return "alive"

    async def job(event: kopf.RawEvent, **_: Any) -> None:
        meta = event["object"]["metadata"]
        key = Key(meta["namespace"], meta["name"])
        watchdog.heard(key, meta["resourceVersion"], deleted=event["type"] == "DELETED")
        queue.add(key)

    kopf.on.login(registry=handlers)(login)
    kopf.on.probe(registry=handlers, id="watch")(watch_is_alive)
    kopf.on.event(GRPO_JOB.group, GRPO_JOB.version, GRPO_JOB.plural, registry=handlers, id="job")(job)
    for kind in WATCHED:
        _watch_children(handlers, kind, queue, applied)
    return handlers


def _watch_children(handlers: kopf.OperatorRegistry, kind: Kind, queue: Queue, applied: Applied) -> None:
    async def child(event: kopf.RawEvent, **_: Any) -> None:
        meta = event["object"]["metadata"]
        deleted = event["type"] == "DELETED"
        known = Child(kind, meta["namespace"], meta["name"])
        applied.heard(known, meta["resourceVersion"], deleted=deleted, created_once=kind in CREATED_ONCE)
        queue.add(Key(meta["namespace"], meta["labels"][labels.JOB]))

    present = {labels.JOB: kopf.PRESENT}
    kopf.on.event(kind.group, kind.version, kind.plural, labels=present, registry=handlers, id=kind.plural)(child)
