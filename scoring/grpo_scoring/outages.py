"""Whether an error of the libraries that read from the hub means that the hub could not be reached."""

from __future__ import annotations

import os
from collections.abc import Iterator

_UNREACHABLE = frozenset(
    f"{library}.{name}"
    for library, names in {
        "builtins": ("ConnectionError", "TimeoutError"),
        "httpx": ("NetworkError", "TimeoutException", "RemoteProtocolError", "ProxyError"),
        "httpx2": ("NetworkError", "TimeoutException", "RemoteProtocolError", "ProxyError"),
        "requests": ("ConnectionError", "Timeout", "ChunkedEncodingError"),
        "aiohttp": ("ClientConnectionError", "ClientPayloadError"),
        "huggingface_hub": ("LocalEntryNotFoundError",),
    }.items()
    for name in names
)
"""Errors of transport, by library and class. By name, because which HTTP library the hub's client stands on changes."""

_OFFLINE = "OfflineModeIsEnabled"
"""Error of the hub's client. `datasets` cuts it off the chain, and keeps its name in the message alone."""
_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


def is_outage(error: BaseException) -> bool:
    """Whether the error, or one that led to it, is a lost connection, a time-out, or HTTP 429 or 5xx.

    Never in offline mode, where a file that is not in the cache stays missing.
    """
    chain = list(_chain(error))
    if any(os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in _OFFLINE_VARIABLES):
        return False
    if any(type(link).__name__ == _OFFLINE or _OFFLINE in str(link) for link in chain):
        return False
    return any(_is_unreachable(link) or _is_for_later(link) for link in chain)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from or during, each once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _is_unreachable(error: BaseException) -> bool:
    names = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    return not names.isdisjoint(_UNREACHABLE)


def _is_for_later(error: BaseException) -> bool:
    status = getattr(getattr(error, "response", None), "status_code", None) or getattr(error, "status", None)
    return isinstance(status, int) and (status == 429 or 500 <= status < 600)
