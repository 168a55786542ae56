"""Which form a request has, and which its answer gets."""

from __future__ import annotations

import re

from grpo_scoring.wire import JSON, MEDIA_TYPES
from starlette.datastructures import Headers

from grpo_refserver.errors import ApiError

_KNOWN = " or ".join(MEDIA_TYPES)
_WEIGHT = re.compile(r"q=(0(\.\d*)?|1(\.0*)?)")


def media_types(headers: Headers) -> tuple[str, str]:
    """The request's media type and the answer's: what Accept weighs most, in doubt the request's own.

    Raises ApiError 415 or 406.
    """
    sent = headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if sent not in MEDIA_TYPES:
        raise ApiError(415, f"Content-Type must be {_KNOWN}", "Content-Type")
    weights = _weights(",".join(headers.getlist("accept")) or "*/*")
    best = max((sent, *MEDIA_TYPES), key=lambda name: _weight(weights, name))
    if not _weight(weights, best):
        raise ApiError(406, f"Accept must allow {_KNOWN}", "Accept")
    return sent, best


def _weights(accept: str) -> dict[str, float]:
    """Media ranges with their weights, 0 to 1 (RFC 9110, section 12.5.1)."""
    result = {}
    for entry in accept.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        given = [match[1] for match in map(_WEIGHT.fullmatch, parameters) if match]
        result[name] = float(given[0]) if given else 1.0
    return result


def _weight(weights: dict[str, float], name: str) -> float:
    """By the most specific range that holds the media type; 0 where none does."""
    return next((weights[part] for part in (name, "application/*", "*/*") if part in weights), 0.0)
