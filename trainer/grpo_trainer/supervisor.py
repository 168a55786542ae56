"""The rank processes of one trainer pod: what they print is passed on, and the cause of their end is found."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import BinaryIO, TextIO

from grpo_api.exit_codes import ExitCode, is_permanent
from grpo_api.rank_processes import RankEnd, RankProcesses

SETTLE_SECONDS = 10.0
"""After the first bad end: how long the other ranks have to end by themselves. Longer than a rank waits that only lost
a peer, so that the cause is seen."""


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
    """The rank processes of one pod, each with its reward worker; their lines are passed on as they come."""

    def __init__(self, log: BinaryIO | None, out: TextIO = sys.stdout, settle_seconds: float = SETTLE_SECONDS) -> None:
        """`log`: file that also gets every line."""
        self._log = log
        self._out = out
        self._write_lock = threading.Lock()
        self._readers: list[threading.Thread] = []
        self._ranks = RankProcesses(settle_seconds=settle_seconds, ends_all=lambda end: end.code != ExitCode.SUCCEEDED)

    def start(self, command: Sequence[str], environments: Mapping[int, Mapping[str, str]]) -> None:
        """Start one process per rank."""
        self._ranks.start(command, environments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for rank, process in self._ranks.processes.items():
            reader = threading.Thread(target=self._pass_on, args=(rank, process), daemon=True)
            reader.start()
            self._readers.append(reader)

    def terminate(self) -> None:
        """Pass SIGTERM on to the ranks: they save at the next boundary and end with 75."""
        self._ranks.signal(signal.SIGTERM)

    @property
    def terminated(self) -> bool:
        """Whether SIGTERM was passed on."""
        return self._ranks.signalled

    def wait(self, grace_seconds: float) -> list[RankEnd]:
        """Wait until all ranks have ended; the ends come in the order they were seen.

        After the first bad end the others have a few seconds; after SIGTERM all have `grace_seconds`. Then they are
        killed.
        """
        ends = self._ranks.wait(grace_seconds)
        for reader in self._readers:
            reader.join(timeout=2.0)  # a grandchild may still hold the pipe
        return ends

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
