"""What rank 0 tells the other ranks to do, as bytes. No pickle: groups travel as on the wire, the rest as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_scoring.groups import Group
from grpo_scoring.wire import SAFETENSORS, LogprobsRequest, decode_request, encode_request


@dataclass(frozen=True, eq=False)
class Score:
    """Take part in the forwards of these groups."""

    groups: Sequence[Group]
    temperature: float


@dataclass(frozen=True)
class Stage:
    """Load your part of a version, beside the one that serves, and say how it went."""

    version: str
    path: Path | None


@dataclass(frozen=True)
class Swap:
    """Put the staged version in the place of the one that serves."""

    version: str


@dataclass(frozen=True)
class Close:
    """End."""


Call = Score | Stage | Swap | Close
_KINDS = {kind.__name__: kind for kind in (Stage, Swap, Close)}


def encode(call: Call) -> bytes:
    """One byte that says which form follows, then the form."""
    if isinstance(call, Score):
        return b"S" + encode_request(LogprobsRequest(call.groups, call.temperature), SAFETENSORS)
    fields = {name: str(value) if isinstance(value, Path) else value for name, value in vars(call).items()}
    return b"J" + json.dumps([type(call).__name__, fields]).encode()


def decode(data: bytes) -> Call:
    """The call. Raises ValueError for anything that ``encode`` does not make."""
    if data[:1] == b"S":
        request = decode_request(data[1:], SAFETENSORS)
        return Score(request.groups, request.temperature)
    kind, fields = json.loads(data[1:])
    if fields.get("path") is not None:
        fields["path"] = Path(fields["path"])
    call: Call = _KINDS[kind](**fields)
    return call
