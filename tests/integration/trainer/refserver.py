"""A real reference server, as a process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.integration.trainer.jobs import free_port

START_SECONDS = 420


@dataclass
class ReferenceServer:
    process: subprocess.Popen[bytes]
    url: str
    log: Path
    token: Path | None

    def ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        return False


@contextlib.contextmanager
def reference_server(
    model: Path, folder: Path, *flags: str, token: Path | None = None, port: int | None = None
) -> Iterator[ReferenceServer]:
    """Run `grpo-refserver` until the block ends, on a free port unless one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    port, log = port or free_port(), folder / "refserver.log"
    command = [sys.executable, "-m", "grpo_refserver.cli", "--model", str(model), "--port", str(port), *flags]
    if token is not None:
        command += ["--token-file", str(token)]
    with log.open("wb") as stream:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=environment)
    server = ReferenceServer(process, f"http://127.0.0.1:{port}", log, token)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.ready():
            assert process.poll() is None, f"the reference server ended:\n{log.read_text()[-4000:]}"
            assert time.monotonic() < deadline, f"not ready after {START_SECONDS} s:\n{log.read_text()[-4000:]}"
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
