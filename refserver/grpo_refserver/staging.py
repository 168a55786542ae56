"""Loading one version at a time, beside the thread that scores."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from grpo_refserver.engine import Staged, VersionError

log = logging.getLogger(__name__)

Stage = Callable[[str, Path | None], Staged]
Outcome = Staged | VersionError


class Stager:
    """At most one version is being loaded, and at most one is kept loaded.

    What has been staged is kept until it is swapped in or another version is wanted, also where nobody waits for it
    any more: a client whose deadline was shorter than the loading finds it when it asks again.

    Args:
        lock: held by whoever uses this class, and taken to change it.
        done: called from the staging thread, with the lock held, with what was asked for and what came of it.
    """

    def __init__(self, lock: AbstractContextManager[Any], done: Callable[[str, Path | None, Outcome], None]) -> None:
        self._lock = lock
        self._done = done
        self._thread: threading.Thread | None = None
        self.running: str | None = None
        """The version that is being loaded."""
        self.staged: Staged | None = None

    def want(self, version: str, path: Path | None, stage: Stage) -> None:
        """Starts to load a version, unless it is staged already or something is being loaded."""
        if self.running is not None or self.holds(version):
            return
        self.staged = None  # its memory is needed
        self.running = version
        self._thread = threading.Thread(target=self._run, args=(version, path, stage), name="staging", daemon=True)
        self._thread.start()

    def holds(self, version: str) -> bool:
        """Whether this version is staged."""
        return self.staged is not None and self.staged.version == version

    def take(self) -> Staged:
        """Hands the staged version out."""
        assert self.staged is not None
        staged, self.staged = self.staged, None
        return staged

    def join(self, timeout: float) -> bool:
        """Waits for what is being loaded; returns whether nothing is any more."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def _run(self, version: str, path: Path | None, stage: Stage) -> None:
        outcome: Outcome
        try:
            outcome = stage(version, path)
        except VersionError as error:
            outcome = error
        except BaseException as error:  # whatever it is, the old version serves on and clients are told
            log.exception("staging failed", extra={"version": version})
            outcome = VersionError(f"version {version}: {type(error).__name__}; the server's log has the details")
        with self._lock:
            self.staged = outcome if isinstance(outcome, Staged) else None
            self.running = None
            self._done(version, path, outcome)
