"""Load on one reference server, with a SIGKILL and reloads in the middle: nothing wrong, nothing lost unsaid.

usage: python -m tests.sweep.reference_load [--minutes 10] [--clients 64] [--out FILE]

Clients ask without pause. Some name the newest version and its folder, some take what is loaded, some come by
/v1/completions. Every answer is compared with plain transformers under the version it names. A request may be
refused with a status that means it (429, 503, 504), or get no answer while the server is dead; nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from grpo_scoring.groups import Group
from grpo_scoring.wire import SAFETENSORS, LogprobsRequest, decode_answer, encode_request

from tests.sweep.supervised_server import SupervisedServer
from tests.sweep.versions import expected_logprobs, make_requests, save_versions

RELOADS = 3
TOLERANCE = 5e-6
REFUSALS = {429, 503, 504}
DEADLINE_SECONDS = 60.0
FLAGS = ["--max-batch-tokens", "4096", "--max-queued-tokens", "4000", "--dtype", "float32"]


@dataclass
class Report:
    """What came of it."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Latencies by status; ``none`` where the server died under the request."""
    versions: Counter[str] = field(default_factory=Counter)
    """Right answers by the version that gave them."""
    difference: float = 0.0
    """Largest difference to plain transformers, relative to the larger of 1 and the log-probability."""
    problems: list[str] = field(default_factory=list)
    reload_seconds: list[float] = field(default_factory=list)
    outage_seconds: float = 0.0
    since_restart: int = 0
    """Answers with 200 since the server was started again, and …"""
    counted: int = 0
    """… what the server has counted: the same number, if each was answered once."""
    memory: tuple[int, int] = (0, 0)
    """Resident bytes of the server: a little after the restart, and at the end."""

    def table(self) -> list[dict[str, Any]]:
        """Latencies by status."""
        rows = []
        for status, seconds in sorted(self.seconds.items()):
            low, high, highest = np.percentile(seconds, [50, 90, 99]).tolist()
            rows.append(
                {"status": status, "requests": len(seconds), "p50_ms": low, "p90_ms": high, "p99_ms": highest}
                | {"max_ms": max(seconds)}
            )
        return [
            {key: round(1000 * value, 1) if key.endswith("_ms") else value for key, value in row.items()}
            for row in rows
        ]


class Load:
    """The clients, what they ask, and the version they want at the moment."""

    def __init__(self, server: SupervisedServer, folders: dict[str, Path], requests: list[list[Group]]) -> None:
        self.server = server
        self.report = Report()
        self.target = "base"
        self._folders = folders
        self._requests = requests
        self._expected = {name: expected_logprobs(path, requests) for name, path in folders.items()}
        self._bodies: dict[tuple[int, str | None], bytes] = {}
        self._ended = asyncio.Event()
        for first, second in itertools.combinations(self._expected.values(), 2):
            for mine, theirs in zip(first, second, strict=True):
                assert np.abs(mine - theirs).max() > 1000 * TOLERANCE, "versions must be told apart by every request"

    async def run(self, seconds: float, clients: int) -> Report:
        """Lets the clients ask for so long, with a kill and the reloads in between; what these take comes on top."""
        limits = httpx.Limits(max_connections=clients + 2, max_keepalive_connections=clients + 2)
        async with httpx.AsyncClient(
            base_url=self.server.url, limits=limits, timeout=2 * DEADLINE_SECONDS, trust_env=False
        ) as http:
            asking = [asyncio.create_task(self._client(http, number)) for number in range(clients)]
            await asyncio.sleep(seconds / 5)
            await self._reload(http, "step-1")
            await asyncio.sleep(seconds / 5)
            await self.server.kill()
            died, restarted = self.server.outages[-1]
            await asyncio.sleep(seconds / 5)
            memory = self.server.memory()
            await self._reload(http, "step-2")
            await asyncio.sleep(seconds / 5)
            await self._reload(http, "step-3")
            await asyncio.sleep(seconds / 5)
            self._ended.set()
            await asyncio.gather(*asking)
            self.report.memory = (memory, self.server.memory())
            self.report.outage_seconds = restarted - died
            self.report.counted = await self._counted(http)
        return self.report

    async def _client(self, http: httpx.AsyncClient, number: int) -> None:
        choose = random.Random(number)
        while not self._ended.is_set():
            index = choose.randrange(len(self._requests))
            kind = choose.choices(["target", "any", "completions"], [6, 3, 1])[0]
            begun = time.monotonic()
            try:
                response = await self._ask(http, index, kind)
            except httpx.TransportError as error:
                self.report.seconds["none"].append(time.monotonic() - begun)
                if not self._was_dead(begun, time.monotonic()):
                    self.report.problems.append(f"no answer from a living server: {type(error).__name__}: {error}")
                await asyncio.sleep(0.2)
                continue
            self.report.seconds[str(response.status_code)].append(time.monotonic() - begun)
            if response.status_code == 200:
                self._count(begun)
                continue
            if response.status_code not in REFUSALS:
                self.report.problems.append(f"{response.status_code}: {response.text[:300]}")
            # A real client waits as long as it is told; shorter here, so that the queue stays full.
            await asyncio.sleep(min(0.3, float(response.headers.get("retry-after", 0.1))))

    async def _ask(self, http: httpx.AsyncClient, index: int, kind: str) -> httpx.Response:
        """Asks once, and checks the values of an answer."""
        if kind == "completions":
            return await self._ask_completions(http, index)
        version = self.target if kind == "target" else None
        if (index, version) not in self._bodies:
            path = None if version in (None, "base") else str(self._folders[version])
            asked = LogprobsRequest(
                self._requests[index], deadline_seconds=DEADLINE_SECONDS, version=version, version_path=path
            )
            self._bodies[index, version] = encode_request(asked, SAFETENSORS)
        headers = {"Content-Type": SAFETENSORS}
        response = await http.post("/v1/logprobs", content=self._bodies[index, version], headers=headers)
        if response.status_code == 200:
            answer = decode_answer(response.content, SAFETENSORS, self._requests[index])
            if version not in (None, answer.version):
                self.report.problems.append(f"{version} was wanted and {answer.version} answered")
            self._check(answer.version, answer.logprobs, self._expected[answer.version][index])
        return response

    async def _ask_completions(self, http: httpx.AsyncClient, index: int) -> httpx.Response:
        groups = self._requests[index]
        rows = [[*group.prompt.tolist(), *ids.tolist()] for group in groups for ids in group.completions]
        response = await http.post("/v1/completions", json={"prompt": rows, "max_tokens": 1, "prompt_logprobs": 0})
        if response.status_code == 200:
            answer = response.json()
            values = []
            prompts = [group.prompt.size for group in groups for _ in group.completions]
            for row, first, choice in zip(rows, prompts, answer["choices"], strict=True):
                entries = choice["prompt_logprobs"]
                values += [entries[at][str(row[at])]["logprob"] for at in range(first, len(row))]
            version = answer["system_fingerprint"]
            self._check(version, np.array(values, dtype=np.float32), self._expected[version][index])
        return response

    def _check(self, version: str, values: np.ndarray, expected: np.ndarray) -> None:
        difference = float((np.abs(values - expected) / np.maximum(1, np.abs(expected))).max())
        self.report.difference = max(self.report.difference, difference)
        if difference > TOLERANCE:
            self.report.problems.append(f"values of {version} differ by {difference:.3g}")
        else:
            self.report.versions[version] += 1

    async def _reload(self, http: httpx.AsyncClient, version: str) -> None:
        begun = time.monotonic()
        body = {"version": version, "versionPath": str(self._folders[version])}
        response = await http.post("/v1/reload", json=body)
        if response.status_code != 200 or response.json() != {"version": version}:
            self.report.problems.append(f"reload: {response.status_code}: {response.text[:300]}")
        else:
            self._count(begun)
        self.report.reload_seconds.append(time.monotonic() - begun)
        self.target = version

    def _count(self, begun: float) -> None:
        """Counts an answer by the process that gave it: the new one, if it was asked for when the old one was dead."""
        self.report.since_restart += begun >= self.server.started

    async def _counted(self, http: httpx.AsyncClient) -> int:
        text = (await http.get("/metrics")).text
        (line,) = (one for one in text.splitlines() if one.startswith('grpo_reference_requests_total{status="200"}'))
        return int(float(line.rpartition(" ")[2]))

    def _was_dead(self, begun: float, ended: float) -> bool:
        """Whether the server was, at some time in between. While it restarts, its outage has no end yet."""
        return self.server.dying or any(begun < last and first < ended for first, last in self.server.outages)


def verdict(report: Report) -> list[str]:
    """What is wrong; empty if nothing."""
    problems = list(report.problems)
    if report.since_restart != report.counted:
        problems.append(f"{report.since_restart} answers came and {report.counted} were given since the restart")
    missing = {"base", "step-1", "step-2", "step-3"} - report.versions.keys()
    if missing:
        problems.append(f"no answer from {', '.join(sorted(missing))}")
    if not report.seconds["429"]:
        problems.append("the queue was never full: not much of a load")
    return problems


async def run_load(folder: Path, *, seconds: float, clients: int) -> Report:
    """One run in a folder of its own."""
    folders = save_versions(folder, RELOADS)
    root = str(folder / "versions")
    server = SupervisedServer(["--model", str(folders["base"]), "--versions-root", root, *FLAGS], folder / "server.log")
    try:
        await server.ready()
        report = await Load(server, folders, make_requests(40)).run(seconds, clients)
        code = server.stop()
    except BaseException:
        server.stop()
        raise
    if code:
        report.problems.append(f"after SIGTERM the server ended with {code}")
    return report


def main() -> int:
    """Runs it, prints the table, writes the figures; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description="Load on one reference server, with a SIGKILL and three reloads.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--out", type=Path, help="file for the figures, as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(run_load(Path(folder), seconds=60 * given.minutes, clients=given.clients))
    problems = verdict(report)
    document = {
        "conditions": {
            "minutes": given.minutes,
            "clients": given.clients,
            "model": "random Llama, 2 layers of 64, vocabulary 320, float32",
            "flags": FLAGS,
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "shared": "clients and server on the same cores",
        },
        "latency": report.table(),
        "right_answers": dict(sorted(report.versions.items())),
        "largest_difference": report.difference,
        "reload_seconds": [round(seconds, 3) for seconds in report.reload_seconds],
        "outage_seconds": round(report.outage_seconds, 3),
        "answers_since_restart": {"received": report.since_restart, "counted_by_the_server": report.counted},
        "server_memory_mb": [round(size / 1e6, 1) for size in report.memory],
        "problems": problems[:20],
    }
    print(f"{'status':>8} {'requests':>9} {'p50 ms':>9} {'p90 ms':>9} {'p99 ms':>9} {'max ms':>9}")
    for row in document["latency"]:
        print(
            f"{row['status']:>8} {row['requests']:>9}"
            + "".join(f" {row[f'{name}_ms']:>9}" for name in ("p50", "p90", "p99", "max"))
        )
    print(json.dumps({key: value for key, value in document.items() if key != "latency"}, indent=2))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
