"""Starts the rank processes of one pod, passes on what they print, ends them together, and finds the cause."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TextIO

from grpo_api.exit_codes import ExitCode, is_permanent

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 10.0
"""After the first bad end: how long the other ranks have to end by themselves. Longer than a rank waits that only lost
a peer, so that the cause is seen."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How a rank process ended."""

    rank: int
    """Global rank."""
    code: int
    """As subprocess gives it: -n for signal n."""
    by_us: bool = False
    """Whether this launcher ended it, because of another rank or because time was up."""

    @property
    def exit_code(self) -> int:
        """As a shell gives it: signals as 128 + n."""
        return self.code if self.code >= 0 else 128 - self.code


def cause(ends: Sequence[RankEnd]) -> RankEnd:
    """Of the ends, in the order they were seen, return the one that explains the others.

    A permanent code explains a crash elsewhere, a crash explains a lost peer (75); ranks that the launcher ended itself
    explain nothing. Among equals the first; where all succeeded, the lowest rank.
    """
    if all(end.code == ExitCode.SUCCEEDED for end in ends):
        return min(ends, key=lambda end: end.rank)
    return min(ends, key=_weight)


def _weight(end: RankEnd) -> int:
    if end.code == ExitCode.SUCCEEDED:
        return 4
    if end.by_us:
        return 3
    if is_permanent(end.code):
        return 0
    return 2 if end.code == ExitCode.RETRY else 1


class Supervisor:
    """The rank processes of one pod."""

    def __init__(self, log: BinaryIO | None, out: TextIO = sys.stdout, settle_seconds: float = SETTLE_SECONDS) -> None:
        """`log`: file that also gets every line."""
        self._log = log
        self._out = out
        self._settle_seconds = settle_seconds
        self._write_lock = threading.Lock()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []
        self._ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._killed: set[int] = set()
        self._terminated_at: float | None = None

    def start(self, command: Sequence[str], environments: Mapping[int, Mapping[str, str]]) -> None:
        """Start one process per rank; each leads a process group of its own, with its reward worker."""
        for rank, environment in environments.items():
            self._processes[rank] = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),
            )
        # Threads only now: what runs between fork and exec must not meet a lock that another thread holds.
        for rank, process in self._processes.items():
            reader = threading.Thread(target=self._pass_on, args=(rank, process), daemon=True)
            reader.start()
            self._readers.append(reader)
            threading.Thread(target=self._await, args=(rank, process), daemon=True).start()

    def terminate(self) -> None:
        """Pass SIGTERM on to the ranks: they save at the next boundary and end with 75."""
        if self._terminated_at is None:
            self._terminated_at = time.monotonic()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    @property
    def terminated(self) -> bool:
        """Whether SIGTERM was passed on."""
        return self._terminated_at is not None

    def wait(self, grace_seconds: float) -> list[RankEnd]:
        """Wait until all ranks have ended; the ends come in the order they were seen.

        After the first bad end the others have a few seconds; after SIGTERM all have `grace_seconds`. Then they are
        killed.
        """
        ends: list[RankEnd] = []
        failed_at: float | None = None
        while len(ends) < len(self._processes):
            now = time.monotonic()
            limits = [
                start + seconds
                for start, seconds in ((failed_at, self._settle_seconds), (self._terminated_at, grace_seconds))
                if start is not None
            ]
            if limits and now >= min(limits):
                self._kill(ends)
            try:
                # Short, because SIGTERM may set a limit while we wait.
                rank, code = self._ended.get(timeout=min(1.0, max(0.05, min(limits, default=now + 1) - now)))
            except queue.Empty:
                continue
            ends.append(RankEnd(rank, code, by_us=rank in self._killed))
            if code != ExitCode.SUCCEEDED and failed_at is None:
                failed_at = time.monotonic()
        for rank, process in self._processes.items():
            self._kill_group(rank, process)  # what a rank has left behind
        for reader in self._readers:
            reader.join(timeout=2.0)  # a grandchild may still hold the pipe
        return ends

    def _kill(self, ends: Sequence[RankEnd]) -> None:
        for rank in self._processes.keys() - {end.rank for end in ends} - self._killed:
            self._killed.add(rank)
            self._kill_group(rank, self._processes[rank])

    def _kill_group(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def _await(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self._ended.put((rank, process.wait()))

    def _pass_on(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        prefix = f"[rank {rank}] "
        for line in process.stdout:
            text = prefix + line.decode(errors="replace").rstrip("\n") + "\n"
            with self._write_lock, contextlib.suppress(OSError, ValueError):
                self._out.write(text)
                self._out.flush()
                if self._log is not None:
                    self._log.write(text.encode())
                    self._log.flush()


def _die_with(parent: int):  # type: ignore[no-untyped-def]
    """What a child runs before exec: it dies when the launcher does, however that dies."""
    prctl = ctypes.CDLL(None).prctl

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arrange
