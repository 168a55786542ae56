import logging
import subprocess
import sys

from grpo_refserver.logs import Formatter


def line(message: str, **extra: object) -> str:
    record = logging.makeLogRecord({"msg": message, "levelname": "INFO", "created": 0.5} | extra)
    return Formatter().format(record)


def test_a_line_is_time_level_message_and_fields():
    assert line("request", status=200, ms=4) == "1970-01-01T00:00:00.500Z INFO request status=200 ms=4"


def test_nothing_breaks_the_line():
    assert line("two\nlines", model="a b\nc", empty="") == (
        '1970-01-01T00:00:00.500Z INFO two lines model="a b c" empty=""'
    )


_USE = """
import logging
from grpo_refserver import logs
logs.configure("info")
import huggingface_hub.utils, transformers
logs.adopt("huggingface_hub", "transformers")
for library in ("huggingface_hub", "transformers"):
    logging.getLogger(library + ".part").warning("retrying")
"""


def test_libraries_with_handlers_of_their_own_are_heard_once_and_in_our_form():
    """In a process of its own: pytest changes the handlers of loggers."""
    used = subprocess.run([sys.executable, "-c", _USE], capture_output=True, text=True, timeout=120, check=True)
    lines = [line.split(" ", 1)[1] for line in used.stderr.splitlines() if "retrying" in line]
    assert lines == ["WARNING retrying"] * 2, used.stderr
