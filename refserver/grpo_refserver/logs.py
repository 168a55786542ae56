"""One line per event: time, level, message, then key=value. No token, prompt or completion is ever an extra."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName", "color_message"}


class Formatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z INFO request status=200 ms=41``; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record with its extras."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        extras = [f"{name}={_quote(value)}" for name, value in vars(record).items() if name not in _STANDARD]
        message = " ".join(record.getMessage().splitlines())
        line = " ".join([moment.replace("+00:00", "Z"), record.levelname, message, *extras])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(level: str) -> None:
    """Sends everything to standard error in this form; other libraries' chatter from WARNING up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("grpo_refserver").setLevel(level.upper())


def adopt(*libraries: str) -> None:
    """Sends the lines of libraries that log by handlers of their own here, each once. Call it after their import."""
    for library in libraries:
        logger = logging.getLogger(library)
        logger.handlers.clear()
        logger.propagate = True


def _quote(value: object) -> str:
    text = " ".join(str(value).split())
    return f'"{text}"' if not text or " " in text or '"' in text else text
