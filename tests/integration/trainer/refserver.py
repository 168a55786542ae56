"""A real reference server, as a process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.server_process import free_port, server_process

START_SECONDS = 420


@dataclass
class ReferenceServer:
    process: subprocess.Popen[bytes]
    url: str
    log: Path
    token: Path | None


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
    url = f"http://127.0.0.1:{port}"
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with server_process(command, log, ready=f"{url}/readyz", seconds=START_SECONDS, environment=environment) as process:
        yield ReferenceServer(process, url, log, token)
