import logging

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
