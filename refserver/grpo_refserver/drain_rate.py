"""How fast the queue empties, and so when a client that found it full should come back."""

from __future__ import annotations

import math

_MEMORY_SECONDS = 30.0
"""Work older than this counts for less than a third."""
_MIN_SECONDS, _MAX_SECONDS = 1, 60


class DrainRate:
    """Tokens per second of scoring, of the last half minute or so.

    A ratio of sums, both fading with the seconds scored: one small slow batch does not hide ten large fast ones.
    """

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Counts a batch."""
        fade = math.exp(-seconds / _MEMORY_SECONDS)
        self._tokens = self._tokens * fade + tokens
        self._seconds = self._seconds * fade + seconds

    @property
    def tokens_per_second(self) -> float | None:
        """None before the first batch."""
        return self._tokens / self._seconds if self._seconds > 0 else None

    def retry_after(self, tokens: int) -> int:
        """Whole seconds until so many tokens are scored, 1 to 60; 1 where nothing is known yet."""
        rate = self.tokens_per_second
        if rate is None:
            return _MIN_SECONDS
        return max(_MIN_SECONDS, math.ceil(min(_MAX_SECONDS, tokens / rate))) if rate else _MAX_SECONDS
