"""The safetensors encoding: the arrays of FlatGroups as tensors, the scalars as strings in the metadata.

Request: int32 ``prompt_ids``, ``prompt_offsets``, ``completion_ids``, ``completion_offsets``, ``group_offsets``;
metadata ``temperature``, ``deadlineSeconds``, ``version``, ``versionPath`` (all but the first optional).
Answer: float32 ``logprobs``, int32 ``completion_offsets``; metadata ``model``, ``version``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from grpo_scoring.groups import FlatGroups, Group
from grpo_scoring.messages import LogprobsAnswer, LogprobsRequest, WireError, check_completions, check_offsets

_DTYPES: dict[str, Any] = {"I32": np.dtype("<i4"), "F32": np.dtype("<f4")}
_REQUEST = {field.name: "I32" for field in fields(FlatGroups)}
_ANSWER = {"logprobs": "F32", "completion_offsets": "I32"}


def encode_request(request: LogprobsRequest) -> bytes:
    """Encodes a request."""
    flat = FlatGroups.of(request.groups)
    metadata = {"temperature": repr(float(request.temperature))}
    if request.deadline_seconds is not None:
        metadata["deadlineSeconds"] = repr(float(request.deadline_seconds))
    if request.version is not None:
        metadata["version"] = request.version
    if request.version_path is not None:
        metadata["versionPath"] = request.version_path
    return bytes(save({name: getattr(flat, name) for name in _REQUEST}, metadata))


def decode_request(body: bytes) -> LogprobsRequest:
    """Decodes a request. Raises WireError."""
    message = _Message.read(body, _REQUEST, {"temperature", "deadlineSeconds", "version", "versionPath"})
    flat = FlatGroups(**message.tensors)
    check_offsets("prompt_offsets", flat.prompt_offsets, flat.prompt_ids.size, "prompt_ids")
    check_offsets("completion_offsets", flat.completion_offsets, flat.completion_ids.size, "completion_ids")
    check_completions("completion_offsets", flat.completion_offsets.size - 1)
    check_offsets("group_offsets", flat.group_offsets, flat.completion_offsets.size - 1, "completion_offsets less one")
    if flat.group_offsets.size != flat.prompt_offsets.size:
        raise WireError(
            "group_offsets",
            f"is for {flat.group_offsets.size - 1} groups, prompt_offsets for {flat.prompt_offsets.size - 1}",
        )
    for field in ("prompt_offsets", "group_offsets"):
        empty = np.flatnonzero(np.diff(getattr(flat, field)) == 0)
        if empty.size:
            what = "prompt" if field == "prompt_offsets" else "list of completions"
            raise WireError(field, f"group {empty[0]} has an empty {what}")
    for field in ("prompt_ids", "completion_ids"):
        if (getattr(flat, field) < 0).any():
            raise WireError(field, "must not be negative")
    return LogprobsRequest(
        groups=flat.groups(),
        temperature=message.number("temperature", 1.0),
        deadline_seconds=message.number("deadlineSeconds", None),
        version=message.metadata.get("version"),
        version_path=message.metadata.get("versionPath"),
    )


def encode_answer(answer: LogprobsAnswer, groups: Sequence[Group]) -> bytes:
    """Encodes an answer; which groups it is for is plain from the offsets."""
    tensors = {"logprobs": answer.logprobs, "completion_offsets": answer.offsets}
    return bytes(save(tensors, {"model": answer.model, "version": answer.version}))


def decode_answer(body: bytes, groups: Sequence[Group]) -> LogprobsAnswer:
    """Decodes an answer. Raises WireError."""
    message = _Message.read(body, _ANSWER, {"model", "version"})
    for name in ("model", "version"):
        if name not in message.metadata:
            raise WireError(name, "is missing from the metadata")
    return LogprobsAnswer(
        message.tensors["logprobs"],
        message.tensors["completion_offsets"],
        message.metadata["model"],
        message.metadata["version"],
    )


@dataclass(frozen=True)
class _Message:
    tensors: dict[str, NDArray[Any]]
    metadata: dict[str, str]

    @classmethod
    def read(cls, body: bytes, expected: dict[str, str], known: set[str]) -> _Message:
        """The tensors named in ``expected`` with their dtypes, all one-dimensional, and known metadata only."""
        try:
            entries = dict(deserialize(body))  # type: ignore[no-untyped-call]
        except SafetensorError as error:
            raise WireError("body", f"is not safetensors: {error}") from None
        if entries.keys() != expected.keys():
            odd = sorted(entries.keys() ^ expected.keys())[0]
            raise WireError(odd[:64], "is missing" if odd in expected else "is not a known tensor")
        tensors = {}
        for name, dtype in expected.items():
            entry = entries[name]
            if entry["dtype"] != dtype or len(entry["shape"]) != 1:
                raise WireError(name, f"must be {dtype} of one dimension, is {entry['dtype']} of {len(entry['shape'])}")
            tensors[name] = np.frombuffer(entry["data"], dtype=_DTYPES[dtype])
        # The library checks the header and leaves its metadata out: 8 bytes of length, then JSON.
        metadata = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")]).get("__metadata__") or {}
        for name in metadata:
            if name not in known:
                raise WireError(name[:64], f"is not known metadata: {', '.join(sorted(known))} are")
        return cls(tensors, metadata)

    def number(self, name: str, default: Any) -> Any:
        """A metadata entry as a number; the message itself checks its range."""
        if name not in self.metadata:
            return default
        try:
            return float(self.metadata[name])
        except ValueError:
            raise WireError(name, f"must be a number, got {self.metadata[name][:32]!r}") from None
