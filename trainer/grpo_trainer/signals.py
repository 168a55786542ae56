"""SIGTERM as a flag that the loop looks at: nothing is broken off in the middle."""

from __future__ import annotations

import logging
import signal
from types import FrameType

logger = logging.getLogger(__name__)


class TerminationFlag:
    """Set by SIGTERM (and SIGINT) from `install` on; before that the signals end the process at once."""

    def __init__(self) -> None:
        self.is_set = False

    def install(self) -> None:
        """Take over the signals; only in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def _set(self, number: int, frame: FrameType | None) -> None:
        self.is_set = True
