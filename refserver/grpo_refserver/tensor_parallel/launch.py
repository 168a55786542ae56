"""Starts the processes of one model, and ends them all when one of them ends.

What torchrun does, but with the exit code and the reason of the process that ended first, SIGTERM for rank 0 alone
(it drains and then tells the others), and no torch in this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_api.env import GRPO_TERMINATION_LOG
from grpo_api.exit_codes import ExitCode, is_permanent
from grpo_api.progress import Termination
from grpo_api.termination import read_termination, write_termination

from grpo_refserver.settings import Settings
from grpo_refserver.tensor_parallel.ranks import Rank

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
"""After the first end: how long the other ranks have to end by themselves."""
_DRAIN_MARGIN_SECONDS = 10.0
"""What a drain may take beyond the grace period: the forward that runs, and the server's own end."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class RankEnd:
    """How a rank ended: ``code`` as subprocess gives it (-n for signal n); ``by_us`` where the launcher killed it."""

    rank: int
    code: int
    by_us: bool = False

    @property
    def exit_code(self) -> int:
        """As a shell gives it: signals as 128 + n."""
        return self.code if self.code >= 0 else 128 - self.code


def cause(ends: Sequence[RankEnd]) -> RankEnd:
    """Of the ends, in the order they were seen, the one that explains the others.

    If rank 0 ended well and no other had failed before, all is well: it drained, or was told to end before it had
    begun. Else settings that cannot work explain a kill elsewhere, a kill an exception, and that a rank that lost its
    peers (75); among equals the first.
    """
    for end in ends:
        if end.code != ExitCode.SUCCEEDED:
            break
        if end.rank == 0:
            return end
    return min(ends, key=_weight)


def _weight(end: RankEnd) -> int:
    if end.by_us:
        return 5
    if end.code == ExitCode.SUCCEEDED:
        return 4
    if is_permanent(end.code):
        return 0
    if end.code < 0:
        return 1
    return 3 if end.code == ExitCode.RETRY else 2


def explain(end: RankEnd, told: Termination | None) -> Termination:
    """The reason that the pod ends with: what the rank told, or what its end says where it told nothing."""
    if told is not None and told.exit_code == end.exit_code:
        return told.model_copy(update={"rank": end.rank, "message": f"rank {end.rank}: {told.message}"})
    how = f"ended with exit code {end.code}" if end.code >= 0 else f"was ended by {signal.Signals(-end.code).name}"
    if end.code == -signal.SIGKILL and not end.by_us:
        how += " (out of memory?)"
    return Termination(reason="Crashed", message=f"rank {end.rank} {how}", rank=end.rank, exit_code=end.exit_code or 1)


class Launcher:
    """The rank processes of one model."""

    def __init__(self, *, grace_seconds: float, settle_seconds: float = SETTLE_SECONDS) -> None:
        """``grace_seconds``: from SIGTERM on; after them all are killed."""
        self._grace_seconds = grace_seconds
        self._settle_seconds = settle_seconds
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._killed: set[int] = set()
        self._signalled_at: float | None = None

    def start(self, command: Sequence[str], environments: Mapping[int, Mapping[str, str]]) -> None:
        """Starts one process per rank, in a session of its own: Ctrl-C reaches this process alone."""
        for rank, environment in environments.items():
            self._processes[rank] = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),
            )
        # Threads only now: what runs between fork and exec must not meet a lock that another thread holds.
        for rank, process in self._processes.items():
            threading.Thread(target=self._await, args=(rank, process), daemon=True).start()

    def signal(self, number: int) -> None:
        """Passes a signal on to rank 0: the first drains it, the second ends it."""
        if self._signalled_at is None:
            self._signalled_at = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            self._processes[0].send_signal(number)

    def wait(self) -> list[RankEnd]:
        """Waits until all ranks have ended; the ends come in the order they were seen.

        After the first end, whatever it was, the others have ``settle_seconds``: the model is of no use without one
        of its parts.
        """
        ends: list[RankEnd] = []
        first_at: float | None = None
        while len(ends) < len(self._processes):
            now = time.monotonic()
            limits = [
                start + seconds
                for start, seconds in ((first_at, self._settle_seconds), (self._signalled_at, self._grace_seconds))
                if start is not None
            ]
            if limits and now >= min(limits):
                self._kill({end.rank for end in ends})
            try:
                # Short, because a signal may set a limit while we wait.
                rank, code = self._ended.get(timeout=min(1.0, max(0.05, min(limits, default=now + 1) - now)))
            except queue.Empty:
                continue
            ends.append(RankEnd(rank, code, by_us=rank in self._killed))
            first_at = first_at or time.monotonic()
        return ends

    def _kill(self, ended: set[int]) -> None:
        for rank in self._processes.keys() - ended - self._killed:
            self._killed.add(rank)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._processes[rank].pid, signal.SIGKILL)

    def _await(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self._ended.put((rank, process.wait()))


def launch(arguments: Sequence[str], settings: Settings) -> int:
    """Runs ``grpo-refserver`` with these arguments as ``tensor_parallel_size`` ranks; returns the exit code."""
    ranks = Rank.all(settings.tensor_parallel_size)
    log.info("starting ranks", extra={"ranks": len(ranks), "meeting_port": ranks[0].port})
    path = os.environ.get(GRPO_TERMINATION_LOG)
    with tempfile.TemporaryDirectory(prefix="grpo-refserver-") as scratch:
        reasons = {rank.rank: Path(scratch) / f"rank-{rank.rank}.json" for rank in ranks}
        launcher = Launcher(grace_seconds=settings.grace_period_seconds + _DRAIN_MARGIN_SECONDS)
        launcher.start(
            [sys.executable, "-m", "grpo_refserver.cli", *arguments],
            {rank.rank: environment(os.environ, rank, reasons[rank.rank], settings.device) for rank in ranks},
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: launcher.signal(received))
        end = cause(launcher.wait())
        told = read_termination(reasons[end.rank])
    if end.exit_code == ExitCode.SUCCEEDED and end.rank == 0:
        return ExitCode.SUCCEEDED
    termination = explain(end, told)
    log.error("ended: %s", termination.message, extra={"exit_code": termination.exit_code})
    write_termination(termination, Path(path) if path else None)
    return int(termination.exit_code or 1)


def environment(own: Mapping[str, str], rank: Rank, termination_log: Path, device: str) -> dict[str, str]:
    """The environment of a rank: torchrun's variables, a reason file of its own, its share of the CPUs."""
    result = {
        # All ranks are on this machine: nothing they say to each other leaves it.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": str(max(1, usable_cpus() // rank.size)),
        **own,
        **rank.to_environ(),
        GRPO_TERMINATION_LOG: str(termination_log),
    }
    if device == "cpu":
        result["CUDA_VISIBLE_DEVICES"] = ""  # transformers spreads a model over the GPUs it sees
    return result


def usable_cpus() -> int:
    """CPUs that this container may use: torch would take all of the machine's, and be throttled."""
    cpus = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()  # "max 100000" where there is no limit
        return max(1, min(cpus, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return cpus


def _die_with(parent: int):  # type: ignore[no-untyped-def]
    """What a child runs before exec: it dies when the launcher does, however that dies."""
    prctl = ctypes.CDLL(None).prctl

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arrange
