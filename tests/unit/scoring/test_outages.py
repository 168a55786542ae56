"""What is an outage of the hub, and what stays wrong however often it is tried."""

from __future__ import annotations

import httpx
import pytest
import requests
from grpo_scoring.outages import is_outage
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


def answered(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "https://hub.test/model")
    return httpx.HTTPStatusError("answered", request=request, response=httpx.Response(status, request=request))


def raised_from(cause: BaseException) -> BaseException:
    error = OSError("cannot load")
    error.__cause__ = ValueError("in between")
    error.__cause__.__context__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        TimeoutError(),
        httpx.ConnectError("no route"),
        httpx.ReadTimeout("slow"),
        requests.ConnectionError(),
        requests.ReadTimeout(),
        LocalEntryNotFoundError("not cached, and the hub does not answer"),
        answered(429),
        answered(503),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_outage_is_seen_through_what_wraps_it(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_outage(error)
    assert is_outage(raised_from(error))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not is_outage(raised_from(error))


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("config.json"),
        ValueError("unknown architecture"),
        answered(401),
        answered(404),
        httpx.UnsupportedProtocol("hub://"),
        OfflineModeIsEnabled("HF_HUB_OFFLINE is set"),
        ConnectionError("Couldn't reach 'org/data' on the Hub (OfflineModeIsEnabled)"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_another_try_cannot_cure_is_none(error: Exception) -> None:
    assert not is_outage(error)
    assert not is_outage(raised_from(error))


def test_what_the_libraries_hide_does_not_count() -> None:
    error = ValueError("unrelated")
    error.__context__ = ConnectionError()
    assert is_outage(error)
    error.__suppress_context__ = True  # raise ... from None
    assert not is_outage(error)


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = ValueError(), OSError()
    first.__context__, second.__context__ = second, first
    assert not is_outage(first)
