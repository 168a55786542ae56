"""The operator as a process of its own, as its pod would run it, against the test's control plane."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.integration.operator.api import wait
from tests.server_process import free_port


class OperatorProcess:
    """One operator; `start` and `kill` it as often as the test likes. Waits are short."""

    def __init__(self, kubeconfig: Path, log: Path, namespaces: tuple[str, ...], **settings: str) -> None:
        self.log = log
        self.health_port, self.metrics_port = free_port(), free_port()
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "GRPO_OPERATOR_NAMESPACES": ",".join(namespaces),
            "GRPO_OPERATOR_HEALTH_PORT": str(self.health_port),
            "GRPO_OPERATOR_METRICS_PORT": str(self.metrics_port),
            "GRPO_OPERATOR_LIMITS_BACKOFF": "0.5",
            "GRPO_OPERATOR_LIMITS_PROGRESS": "0.5",
            "GRPO_OPERATOR_LIMITS_RECHECK": "2",
            **{f"GRPO_OPERATOR_{name.upper()}": value for name, value in settings.items()},
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it is healthy."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "grpo_operator.kubernetes.main"],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        wait(self.healthy, "the operator's /healthz", timeout=120)

    def healthy(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the operator ended:\n{self.text()}"
        try:
            return httpx.get(f"http://127.0.0.1:{self.health_port}/healthz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """SIGKILL: what a lost node does to it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, as the kubelet does, and wait for the end."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(timeout=120)

    @property
    def resident_megabytes(self) -> float:
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def story(self, job: str) -> list[str]:
        """Return what was said about one job, without the time."""
        return [line.split(" ", 3)[3] for line in self.lines() if f"/{job} " in line]

    def lines(self) -> list[str]:
        return self.text().splitlines()
