"""The rank processes of one pod: started together and ended together, with the order in which they ended.

What torchrun's agent does, but each rank's own exit code is kept, and nothing imports torch.
"""

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .die_with_parent import die_with_parent


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How a rank process ended."""

    rank: int
    """Global rank."""
    code: int
    """As subprocess gives it: -n for signal n."""
    by_us: bool = False
    """Whether the launcher ended it, because of another rank or because time was up."""

    @property
    def exit_code(self) -> int:
        """As a shell gives it: signals as 128 + n."""
        return self.code if self.code >= 0 else 128 - self.code

    def describe(self) -> str:
        """Return how it ended, in words that follow "rank n"."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        how = f"was ended by {signal.Signals(-self.code).name}"
        return f"{how} (out of memory?)" if self.code == -signal.SIGKILL and not self.by_us else how


class RankProcesses:
    """One process per rank, each leading a session of its own: Ctrl-C reaches the launcher alone."""

    def __init__(self, *, settle_seconds: float, ends_all: Callable[[RankEnd], bool]) -> None:
        """`settle_seconds`: what the others have to end by themselves after an end for which `ends_all` is true."""
        self._settle_seconds = settle_seconds
        self._ends_all = ends_all
        self._ended: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._killed: set[int] = set()
        self._signalled_at: float | None = None
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, command: Sequence[str], environments: Mapping[int, Mapping[str, str]], **options: Any) -> None:
        """Start one process per rank, from the main thread (`die_with_parent`); `options` are Popen's."""
        for rank, environment in environments.items():
            self.processes[rank] = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGKILL),
                **options,
            )
        # Threads only now: what runs between fork and exec must not meet a lock that another thread holds.
        for rank, process in self.processes.items():
            threading.Thread(target=self._await, args=(rank, process), daemon=True).start()

    def signal(self, number: int, ranks: Sequence[int] | None = None) -> None:
        """Pass a signal on, to all ranks or some; the first one starts the grace period of `wait`."""
        if self._signalled_at is None:
            self._signalled_at = time.monotonic()
        for rank in self.processes if ranks is None else ranks:
            with contextlib.suppress(ProcessLookupError):
                self.processes[rank].send_signal(number)

    @property
    def signalled(self) -> bool:
        """Whether a signal was passed on."""
        return self._signalled_at is not None

    def wait(self, grace_seconds: float) -> list[RankEnd]:
        """Wait until all ranks have ended, and end what they left behind; the ends come as they were seen.

        What still runs `settle_seconds` after an end that ends all, or `grace_seconds` after a signal, is killed.
        """
        ends: list[RankEnd] = []
        ending_at: float | None = None
        while len(ends) < len(self.processes):
            now = time.monotonic()
            limits = [
                start + seconds
                for start, seconds in ((ending_at, self._settle_seconds), (self._signalled_at, grace_seconds))
                if start is not None
            ]
            if limits and now >= min(limits):
                for rank in self.processes.keys() - {end.rank for end in ends} - self._killed:
                    self._killed.add(rank)
                    self._kill(rank)
            try:
                # Short, because a signal may set a limit while we wait.
                rank, code = self._ended.get(timeout=min(1.0, max(0.05, min(limits, default=now + 1) - now)))
            except queue.Empty:
                continue
            end = RankEnd(rank, code, by_us=rank in self._killed)
            ends.append(end)
            if ending_at is None and self._ends_all(end):
                ending_at = time.monotonic()
        for rank in self.processes:
            self._kill(rank)
        return ends

    def _kill(self, rank: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.processes[rank].pid, signal.SIGKILL)

    def _await(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self._ended.put((rank, process.wait()))
