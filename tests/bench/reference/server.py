"""A real reference server process for the benchmark, and the trainer's own client."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from grpo_scoring.groups import Group
from grpo_trainer.reference.client import ReferenceClient
from prometheus_client.parser import text_string_to_metric_families

from tests.bench.reference.rows import Values
from tests.server_process import free_port, server_process

START_SECONDS = 300
REQUEST_SECONDS = 1200.0


@dataclass(frozen=True)
class Server:
    """A server that is ready."""

    url: str

    def client(self) -> ReferenceClient:
        """The trainer's client, as the trainer makes it."""
        client = ReferenceClient(
            self.url, token=None, temperature=1.0, timeout_seconds=REQUEST_SECONDS, use_proxies=False
        )
        client.info()
        return client

    def forward_seconds(self) -> float:
        """Time the server has spent in the model's forwards so far, head and packing included, HTTP not."""
        text = httpx.get(f"{self.url}/metrics", timeout=60, trust_env=False).text
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == "grpo_reference_batch_seconds_sum")


@contextlib.contextmanager
def reference_server(model: Path, log: Path, *, threads: int, flags: Sequence[str]) -> Iterator[Server]:
    """Run `grpo-refserver` until the block ends."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "grpo_refserver.cli", "--model", str(model), "--port", str(port), *flags]
    environment = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    with server_process(command, log, ready=f"{url}/readyz", seconds=START_SECONDS, environment=environment):
        yield Server(url)


@dataclass
class Remote:
    """Scoring through HTTP, client included; remembers what each request cost beside the forward."""

    server: Server
    client: ReferenceClient

    def __post_init__(self) -> None:
        self.overheads: list[float] = []
        """(client's wall - server's forward) / server's forward, one for each call."""

    def score(self, groups: Sequence[Group]) -> Values:
        """As the trainer asks: rows of prompts and completions in, one array per completion back."""
        rows = as_rows(groups)
        return np.concatenate(self.client.submit(*rows).result())

    def timed(self, groups: Sequence[Group]) -> Callable[[], Values]:
        """A call that also notes the overhead. The two reads of /metrics are part of the time: some ms."""
        rows = as_rows(groups)

        def score() -> Values:
            before = self.server.forward_seconds()
            begun = time.perf_counter()
            values = np.concatenate(self.client.submit(*rows).result())
            wall = time.perf_counter() - begun
            forward = self.server.forward_seconds() - before
            self.overheads.append((wall - forward) / forward)
            return values

        return score


def as_rows(groups: Sequence[Group]) -> tuple[list[list[int]], list[list[int]]]:
    """Groups to the trainer's rows: a prompt for each completion."""
    pairs = [(group.prompt.tolist(), completion.tolist()) for group in groups for completion in group.completions]
    return [prompt for prompt, _ in pairs], [completion for _, completion in pairs]
