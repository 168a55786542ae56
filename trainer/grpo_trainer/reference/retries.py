"""When a request is sent again, and after how long."""

from __future__ import annotations

import email.utils
import random
import time

WAIT = frozenset({408, 425, 429, 502, 503, 504})
"""The server, or a proxy before it, is busy, not ready or too slow: as long as the deadline allows."""
FAILED = frozenset({500})
"""The server failed: a few times."""
MAX_FAILURES = 4
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.25, 15.0


def backoff(attempt: int) -> float:
    """Seconds before the next try: doubling, with jitter, so that ranks do not come back all at once."""
    return random.uniform(0.5, 1.0) * min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(attempt, 16))  # noqa: S311


def not_before(seconds: float) -> float:
    """Seconds to wait where the server said how long at least: a little longer, and not all ranks alike."""
    return seconds * random.uniform(1.0, 1.25)  # noqa: S311


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header (RFC 9110: seconds, or a date); None where there is none that can be read."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())
