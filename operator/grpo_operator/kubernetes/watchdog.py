"""Whether watches are alive: a framework's watch that died or hangs looks like a cluster in which nothing happens.

(kopf before 1.45 went on without a watch that had died, and said it was healthy; nolar/kopf#1276.) So all jobs are
listed from time to time, and what the list says is compared with what the watch said.
"""

from collections.abc import Mapping

from .queue import Key


class Watchdog:
    """Compares lists of jobs with the events heard about them."""

    def __init__(self) -> None:
        self._heard: dict[Key, str] = {}
        self._suspects: dict[Key, tuple[str, str | None]] = {}
        self.silent: tuple[Key, ...] = ()
        """Jobs whose changes the watch has not told; empty while it is alive."""

    def heard(self, key: Key, version: str, *, deleted: bool) -> None:
        """Take note of an event with an object's resourceVersion."""
        if deleted:
            self._heard.pop(key, None)
        else:
            self._heard[key] = version

    def compare(self, listed: Mapping[Key, str]) -> None:
        """Compare a list (key: resourceVersion) with what was heard.

        A change that was on the way when the list was made is not held against the watch: a job counts as missed if
        two lists in a row show a version that was not heard, and nothing was heard about the job in between.
        """
        suspects = {
            key: (version, self._heard.get(key)) for key, version in listed.items() if self._heard.get(key) != version
        }
        self.silent = tuple(
            key for key, (_, heard) in suspects.items() if key in self._suspects and self._suspects[key][1] == heard
        )
        self._suspects = suspects
