"""A reference server that is started again when it dies, as a kubelet would."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.server_process import free_port

START_SECONDS = 300.0


class SupervisedServer:
    """``grpo-refserver`` on one port, whatever process it is at the moment.

    Args:
        flags: of the command line, without host and port.
        log: file that all of its processes write to.
    """

    def __init__(self, flags: list[str], log: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.outages: list[tuple[float, float]] = []
        """From each kill to the moment the next process was ready, on ``time.monotonic``'s clock."""
        self.dying = False
        """Between a kill and the next process's readiness."""
        self.started = float("inf")
        """When the last kill was over, on the same clock: who asks later is answered by the new process."""
        self._command = [sys.executable, "-m", "grpo_refserver.cli", *flags, "--port", str(self.port)]
        self._log = log.open("ab")
        self._process = self._start()

    async def ready(self) -> None:
        """Waits until it is ready."""
        deadline = time.monotonic() + START_SECONDS
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            while True:
                assert self._process.poll() is None, f"the server ended with {self._process.returncode}"
                assert time.monotonic() < deadline, f"not ready within {START_SECONDS:g} s"
                try:
                    if (await client.get("/readyz", timeout=5)).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """SIGKILL; then it is started again."""
        begun, self.dying = time.monotonic(), True
        self._process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        self.started = time.monotonic()
        self._process = self._start()
        await self.ready()
        self.outages.append((begun, time.monotonic()))
        self.dying = False

    def memory(self) -> int:
        """Resident bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])  # type: ignore[index]

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self._process.terminate()
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._log.close()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen(self._command, stdout=self._log, stderr=self._log, env=environment)
