import logging

import pytest
from grpo_refserver.logs import Formatter, adopt


def line(message: str, **extra: object) -> str:
    record = logging.makeLogRecord({"msg": message, "levelname": "INFO", "created": 0.5} | extra)
    return Formatter().format(record)


def test_a_line_is_time_level_message_and_fields():
    assert line("request", status=200, ms=4) == "1970-01-01T00:00:00.500Z INFO request status=200 ms=4"


def test_nothing_breaks_the_line():
    assert line("two\nlines", model="a b\nc", empty="") == (
        '1970-01-01T00:00:00.500Z INFO two lines model="a b c" empty=""'
    )


@pytest.fixture
def talkative():
    """A library that writes by a handler of its own, as the hub's client does, whatever the root does."""
    logger = logging.getLogger("talkative")
    logger.addHandler(logging.StreamHandler())
    logger.propagate = False
    yield logger
    logger.handlers.clear()
    logger.propagate = True


def test_libraries_with_handlers_of_their_own_are_heard_once_and_in_our_form(talkative, caplog, capsys):
    adopt("talkative")
    talkative.warning("retrying")
    assert [record.getMessage() for record in caplog.records] == ["retrying"]
    assert capsys.readouterr().err == ""
