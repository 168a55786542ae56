"""A server as a process of a test or a benchmark: awaited until it answers, and ended whatever happens."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx

_PORTS = (20000, 32000)
"""Below Linux' ip_local_port_range."""


def free_port() -> int:
    """A port of the loopback interface that is free now, and that the kernel gives nobody by itself.

    One of its own range could be taken, by any connection of another test, before the process meant for it has started.
    """
    while True:
        port = random.randrange(*_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def is_up(url: str) -> bool:
    """Whether it answers with 200."""
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    return False


def await_answer(process: subprocess.Popen[bytes], url: str, log: Path, seconds: float) -> None:
    """Wait until a server answers with 200. Raises RuntimeError with its log where it ends, or does not in time."""
    deadline = time.monotonic() + seconds
    while not is_up(url):
        if process.poll() is not None:
            raise RuntimeError(f"the server of {url} has ended:\n{log.read_text()[-4000:]}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{url} does not answer after {seconds:g} s:\n{log.read_text()[-4000:]}")
        time.sleep(0.1)


@contextlib.contextmanager
def server_process(
    command: Sequence[str], log: Path, *, ready: str, seconds: float, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends: SIGTERM then, and SIGKILL after half a minute.

    Args:
        command: the program.
        log: file that gets what it prints.
        ready: URL that answers 200 once it serves; awaited before the block begins.
        seconds: limit of that wait.
        environment: added to this process' own.
    """
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=os.environ | environment)
    try:
        await_answer(process, ready, log, seconds)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
