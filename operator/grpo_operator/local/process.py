"""One child process: it writes to a log file, is ended with a grace period, and never outlives us."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from grpo_api.die_with_parent import die_with_parent


class Process:
    """A child process, in a process group of its own, so that Ctrl-C reaches it only through us."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, *, stdout: bool = True
    ) -> None:
        """Start it. `log` gets what it prints, appended; without `stdout` only what it prints to stderr.

        Must be called from the main thread: the kernel ends the child when the thread that started it ends.

        Raises:
            OSError: the program cannot be started.
        """
        self.name = name
        self._kill_at: float | None = None
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output if stdout else subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),  # no other thread runs here
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code, signals as 128 + n; None while it runs."""
        code = self._popen.poll()
        return code if code is None or code >= 0 else 128 - code

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    @property
    def terminating(self) -> bool:
        """Whether it was asked to end and has not ended."""
        return self._kill_at is not None and self.running

    def terminate(self, grace: float) -> None:
        """Ask it to end (SIGTERM); `tick` kills it and its group `grace` seconds later. A later call only hastens."""
        kill_at = time.monotonic() + grace
        if self._kill_at is None:
            self._signal(signal.SIGTERM)
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def tick(self) -> None:
        """Kill it if its time is up."""
        if self._kill_at is not None and time.monotonic() >= self._kill_at and self.running:
            self._signal(signal.SIGKILL, group=True)

    def kill(self) -> None:
        """Kill it and its group, and reap it."""
        self._signal(signal.SIGKILL, group=True)
        self._popen.wait()

    def _signal(self, number: signal.Signals, *, group: bool = False) -> None:
        with suppress(ProcessLookupError):
            if group:
                os.killpg(self.pid, number)
            elif self.running:
                os.kill(self.pid, number)
