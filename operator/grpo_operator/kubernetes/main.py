"""`grpo operator`: the process in the operator's pod."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable

import aiohttp
import click
import kopf
from prometheus_client import start_http_server

from . import frame, kinds, metrics
from .applied import Applied
from .client import ApiError, Client, NoClusterError
from .controller import Controller
from .queue import Key, Queue
from .settings import Settings, SettingsError
from .watchdog import Watchdog

logger = logging.getLogger("grpo.operator")

OUTAGE_SILENCE = 60.0
"""Seconds between two lines about one outage of the API server."""
CRD_WAIT = 2.0
"""Seconds between two looks for the CRD at the start."""


async def operate(settings: Settings) -> None:
    """Run the operator until SIGTERM or SIGINT, or until a part of it fails."""
    queue, applied, watchdog = Queue(), Applied(), Watchdog()
    client = await Client.connect()
    try:
        async with aiohttp.ClientSession() as http:
            controller = Controller(client, http, settings, applied)
            metrics.REGISTRY.register(metrics.JobsByPhase(lambda: controller.phases))
            await _wait_for_crd(client)
            where = ", ".join(settings.namespaces) or "all namespaces"
            logger.info("watching GRPOJobs in %s", where)
            await _run_together(
                kopf.operator(
                    registry=frame.registry(queue, applied, watchdog),
                    settings=frame.settings(),
                    standalone=True,
                    clusterwide=not settings.namespaces,
                    namespaces=settings.namespaces,
                    liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
                ),
                queue.run(_measured(controller.reconcile, queue), settings.workers),
                _resync(client, settings, queue, applied, watchdog),
            )
    finally:
        await client.close()


async def _run_together(*parts: Awaitable[None]) -> None:
    """Run the parts until the first one ends or fails; then end the others."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def _measured(
    reconcile: Callable[[Key], Awaitable[float | None]], queue: Queue
) -> Callable[[Key], Awaitable[float | None]]:
    async def measured(key: Key) -> float | None:
        metrics.QUEUE_DEPTH.set(queue.depth)
        started = time.perf_counter()
        try:
            delay = await reconcile(key)
        except Exception:
            metrics.RECONCILES.labels("error").inc()
            raise
        metrics.RECONCILES.labels("success").inc()
        metrics.RECONCILE_SECONDS.observe(time.perf_counter() - started)
        return delay

    return measured


async def _wait_for_crd(client: Client) -> None:
    """Wait until the API server knows GRPOJobs: in a fresh install it may come a moment after the operator."""
    said = False
    while True:
        try:
            if await client.serves(kinds.GRPO_JOB):
                return
            why = "the API server knows no GRPOJob: install the CRD (crds.install in the chart, or `grpo crd`)"
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            why = f"the API server does not answer: {error}"
        if not said:
            logger.warning("%s; waiting", why)
            said = True
        await asyncio.sleep(CRD_WAIT)


async def _resync(client: Client, settings: Settings, queue: Queue, applied: Applied, watchdog: Watchdog) -> None:
    """Look at every job from time to time, whatever was heard, and compare with what was heard."""
    while True:
        await asyncio.sleep(settings.resync)
        try:
            listed: dict[Key, str] = {}
            for namespace in settings.namespaces or (None,):
                for job in await client.list(kinds.GRPO_JOB, namespace, metadata_only=True):
                    meta = job["metadata"]
                    listed[Key(meta["namespace"], meta["name"])] = meta["resourceVersion"]
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            logger.debug("jobs could not be listed: %s", error)
            continue
        watchdog.compare(listed)
        metrics.WATCH_SILENT.set(len(watchdog.silent))
        applied.forget_all()
        for key in listed:
            queue.add(key)


class OutageFilter(logging.Filter):
    """Has kopf say once, and in our words, that the API server does not answer, instead of at every try of a watch."""

    def __init__(self) -> None:
        super().__init__()
        self._said_at = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        if not str(record.msg).startswith("Request attempt") or record.levelno < logging.ERROR:
            return True
        if time.monotonic() - self._said_at < OUTAGE_SILENCE:
            return False
        self._said_at = time.monotonic()
        record.msg, record.args, record.levelno, record.levelname = (
            "the API server does not answer; trying again: %s",
            (str(record.msg).partition("-> ")[2][:200],),
            logging.WARNING,
            "WARNING",
        )
        return True


def configure_logging(verbose: bool) -> None:
    """Log the story to stderr; kopf's own lines only where something is wrong."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(OutageFilter())
    for name in ("kopf", "aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.WARNING)


@click.command()
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Watch this namespace only (repeatable).")
@click.option("-v", "--verbose", is_flag=True, help="Log what kopf and the queue do, too.")
def command(namespaces: tuple[str, ...], verbose: bool) -> None:
    """Run the operator against the cluster of KUBECONFIG, or the one its pod is in."""
    configure_logging(verbose)
    environment = dict(os.environ)
    if namespaces:
        environment["GRPO_OPERATOR_NAMESPACES"] = ",".join(namespaces)
    try:
        settings = Settings.from_environment(environment)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    start_http_server(settings.metrics_port, registry=metrics.REGISTRY)
    try:
        asyncio.run(operate(settings))
    except NoClusterError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    command()
