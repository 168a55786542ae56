"""Runs the app until SIGTERM, and drains it: what was accepted is answered, what comes new is refused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
import uvicorn.server
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

_FAILED_SECONDS = 5.0
"""What answers that are being sent still have where the model has failed."""
_BODY_SECONDS = 5.0
"""What bodies on their way have to arrive in a drain: a client whose body nobody reads may miss the 503."""
_REFUSAL_SECONDS = 1.0
"""What is left for sending refusals when the time is over."""


class _Server(uvicorn.Server):
    """uvicorn, but a signal starts a drain with the listening socket open: late requests get a 503 that says why."""

    def __init__(self, config: uvicorn.Config, on_startup: Callable[[], None]) -> None:
        super().__init__(config)
        self.signalled, self.hurried = asyncio.Event(), asyncio.Event()
        self.cut = 0
        """How many connections were cut at the end, with an answer on its way."""
        self._signals = 0
        self._until = 0.0
        self._on_startup = on_startup
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to accept; signals are handled from before this on."""
        await super().startup(sockets)
        self._on_startup()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: drain. Second: give up what is open, and end."""
        self._signals += 1
        with contextlib.suppress(RuntimeError):  # the loop is closed: the end is here already
            self._loop.call_soon_threadsafe((self.signalled if self._signals == 1 else self.hurried).set)

    def end(self, seconds: float) -> None:
        """Ends once what is being sent has been sent, or after so many seconds."""
        self._until = self._loop.time() + seconds
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops to accept and sends what is being sent; what is left then or after a second signal is cut."""
        sent = asyncio.create_task(super().shutdown(sockets))  # with no limit of uvicorn's: waits for all connections
        hurried = asyncio.create_task(self.hurried.wait())
        await asyncio.wait({sent, hurried}, timeout=self._until - self._loop.time(), return_when=FIRST_COMPLETED)
        hurried.cancel()
        await asyncio.wait({sent}, timeout=_REFUSAL_SECONDS)
        if not sent.done():
            self.cut = len(self.server_state.connections)
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            self.force_exit = True  # wait for no task either
        await sent


def run(settings: Settings) -> int:
    """Serves until a signal or the model's failure; returns the exit code. Raises ConfigurationError."""
    token = TokenFile(settings.token_file) if settings.token_file is not None else None
    with _listen(settings.host, settings.port) as listener:
        log.info("listening", extra={"host": settings.host, "port": listener.getsockname()[1]})
        if token is None:
            log.warning("no --token-file: whoever reaches the port may use it")
        root = settings.versions_root
        if root is not None and not os.path.isdir(root):
            log.warning(
                "--versions-root: no such folder (yet): is the volume mounted? Until then other versions get 503",
                extra={"folder": root},
            )
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
    for number in uvicorn.server.HANDLED_SIGNALS:
        signal.signal(number, server.handle_exit)  # uvicorn does so as well, but at its end gives back what it found
    ending = asyncio.create_task(_end(service, server, failed, settings.grace_period_seconds))
    await server.serve(sockets=[listener])
    code = await ending
    if server.cut:
        log.error("answers were cut: not all was sent in time", extra={"cut": server.cut})
        code = code or GIVEN_UP
    log.log(logging.ERROR if code else logging.INFO, "stopped", extra={"exit_code": code})
    if not service.worker.stop(timeout=1) or server.server_state.tasks:
        _leave(code)
    return code


async def _end(service: Service, server: _Server, failed: asyncio.Event, grace: float) -> int:
    """Waits for a reason to end, drains, and tells the server to stop; returns the exit code."""
    await _first(server.signalled, failed)
    if failed.is_set():
        server.end(_FAILED_SECONDS)
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
    until = time.monotonic() + grace
    service.drain(min(grace, _BODY_SECONDS))
    await _first(service.idle, server.hurried, seconds=grace)
    given_up = service.give_up()
    server.end(until - time.monotonic())
    if given_up:
        why = "a second signal came" if server.hurried.is_set() else "the grace period is over"
        log.error(why, extra={"given_up": given_up})
    return GIVEN_UP if given_up else ExitCode.SUCCEEDED


async def _first(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Waits for one of the events, or so many seconds."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, timeout=seconds, return_when=FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


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
    """Ends the process under a forward or task that still runs: joining it could take longer than the grace period."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
