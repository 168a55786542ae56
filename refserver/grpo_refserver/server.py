"""Runs the app until SIGTERM, and drains it: what was accepted is answered, what comes new is refused."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
from grpo_api.env import GRPO_TERMINATION_LOG
from grpo_api.exit_codes import ExitCode
from grpo_api.progress import Termination
from grpo_api.termination import write_termination

from grpo_refserver.app import create_app
from grpo_refserver.auth import TokenFile
from grpo_refserver.service import Service
from grpo_refserver.settings import ConfigurationError, HubUnreachable, Settings
from grpo_refserver.worker import State

log = logging.getLogger(__name__)

CRASHED, GIVEN_UP = 1, 1


class _Server(uvicorn.Server):
    """uvicorn, but a signal starts a drain with the listening socket open: late requests get a 503 that says why."""

    def __init__(self, config: uvicorn.Config, on_startup: Callable[[], None]) -> None:
        super().__init__(config)
        self.signalled = asyncio.Event()
        self._on_startup = on_startup
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to accept; signals are handled from before this on."""
        await super().startup(sockets)
        self._on_startup()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: drain. Second: end at once."""
        if self.signalled.is_set():
            self.force_exit = self.should_exit = True
        self._loop.call_soon_threadsafe(self.signalled.set)


def run(settings: Settings) -> int:
    """Serves until a signal or the model's failure; returns the exit code. Raises ConfigurationError."""
    token = TokenFile(settings.token_file) if settings.token_file is not None else None
    with _listen(settings.host, settings.port) as listener:
        log.info("listening", extra={"host": settings.host, "port": listener.getsockname()[1]})
        if token is None:
            log.warning("no --token-file: whoever reaches the port may use it")
        return asyncio.run(_serve(settings, token, listener))


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except OSError as error:
        raise ConfigurationError(f"--host {host} --port {port} cannot be used: {error.strerror}") from error


async def _serve(settings: Settings, token: TokenFile | None, listener: socket.socket) -> int:
    service = Service(settings)
    server = _Server(
        uvicorn.Config(
            create_app(service, token),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=75,  # longer than the client's pool keeps an idle connection
            timeout_graceful_shutdown=5,
            server_header=False,
        ),
        on_startup=service.worker.start,
    )
    failed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_change(state: State) -> None:
        log.info(state.value)
        if state is State.FAILED:
            loop.call_soon_threadsafe(failed.set)

    service.worker.on_change = on_change
    ending = asyncio.create_task(_end(service, server, failed, settings.grace_period_seconds))
    await server.serve(sockets=[listener])
    code = await ending
    log.log(logging.ERROR if code else logging.INFO, "stopped", extra={"exit_code": code})
    if not service.worker.stop(timeout=1):
        _leave(code)
    return code


async def _end(service: Service, server: _Server, failed: asyncio.Event, grace: float) -> int:
    """Waits for a reason to end, drains, and tells the server to stop; returns the exit code."""
    waits = [asyncio.create_task(event.wait()) for event in (server.signalled, failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if failed.is_set():
        server.should_exit = True
        failure = service.worker.failure
        if isinstance(failure, ConfigurationError):
            return refuse(failure)
        if isinstance(failure, HubUnreachable):
            log.error("cannot start: %s", failure)
            tell("HubUnreachable", str(failure), ExitCode.RETRY)
            return ExitCode.RETRY
        log.error("the model thread has failed", exc_info=failure)
        tell("Crashed", f"the model thread has failed: {failure}", CRASHED)
        return CRASHED
    given_up = await service.drain(grace)
    server.should_exit = True
    if given_up:
        log.error("the grace period is over", extra={"given_up": given_up})
    return GIVEN_UP if given_up else ExitCode.SUCCEEDED


def refuse(error: ConfigurationError) -> int:
    """Says why the server cannot start, in the log and to whoever watches the pod; returns the exit code."""
    log.error("cannot start: %s", error)
    tell("ConfigurationError", str(error), ExitCode.CONFIGURATION)
    return ExitCode.CONFIGURATION


def tell(reason: str, message: str, code: int) -> None:
    """Writes the reason to the termination log, where the operator reads it."""
    path = os.environ.get(GRPO_TERMINATION_LOG)
    write_termination(Termination(reason=reason, message=message, exit_code=code), Path(path) if path else None)


def _leave(code: int) -> None:
    """Ends the process under a forward that still runs: joining it could take longer than the grace period."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
