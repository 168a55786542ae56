"""The messages of ``POST /v1/logprobs``, whatever their encoding, and what makes one valid."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_scoring.groups import Group, Ids

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3
MAX_COMPLETIONS = 65536
"""Most completions of one request: each is an object, however few tokens it has."""

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+/-]{0,127}", re.ASCII)


class WireError(ValueError):
    """A message that cannot be decoded, or must not be encoded.

    Attributes:
        field: what is wrong, as a path of the message: ``groups[2].prompt``, ``completion_offsets``.
        problem: what is wrong with it, and what is right.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(frozen=True)
class LogprobsRequest:
    """Asks for the log-probability of every completion token. Raises WireError where a field is out of range.

    Attributes:
        groups: at least one, with at most 65536 completions in all.
        temperature: logits are divided by it; 0.001 to 1000.
        deadline_seconds: > 0; after so many seconds from now the answer is worthless to the client. None: the
            server's own limit.
        version: the wanted version of the reference; None takes what the server has.
        version_path: the folder, below the server's root for versions, to load ``version`` from.
    """

    groups: Sequence[Group]
    temperature: float = 1.0
    deadline_seconds: float | None = None
    version: str | None = None
    version_path: str | None = None

    def __post_init__(self) -> None:
        if not self.groups:
            raise WireError("groups", "is empty: send at least one prompt with its completions")
        check_completions("groups", sum(len(group.completions) for group in self.groups))
        if not MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE:  # also refuses NaN
            raise WireError(
                "temperature", f"must be from {MIN_TEMPERATURE} to {MAX_TEMPERATURE:g}, got {self.temperature}"
            )
        deadline = self.deadline_seconds
        if deadline is not None and not (deadline > 0 and math.isfinite(deadline)):
            raise WireError("deadlineSeconds", f"must be a finite number above 0, got {deadline}")
        if self.version is not None:
            check_version(self.version)
        if self.version_path is not None:
            if self.version is None:
                raise WireError("versionPath", "comes without version: name the version that lies there")
            check_version_path(self.version_path)


@dataclass(frozen=True, eq=False)
class LogprobsAnswer:
    """The log-probabilities, end to end in the order of the request's groups, completions and tokens.

    Raises WireError where a value is not finite, or offsets and values do not fit together.

    Attributes:
        logprobs: float32, (ΣC,), finite.
        offsets: int32, (M + 1,): completion m is ``logprobs[offsets[m]:offsets[m + 1]]``.
        model: name of the model that scored; 1 to 512 printable characters.
        version: its version.
    """

    logprobs: NDArray[np.float32]
    offsets: Ids
    model: str
    version: str

    def __post_init__(self) -> None:
        check_offsets("completion_offsets", self.offsets, self.logprobs.size, "logprobs")
        if not np.isfinite(self.logprobs).all():
            raise WireError("logprobs", "holds NaN or infinity: the model or its dtype is broken")
        check_model(self.model)
        check_version(self.version)


def check_model(model: str) -> None:
    """Raises WireError unless ``model`` is a name that fits a log line."""
    if not 0 < len(model) <= 512 or not model.isprintable():
        raise WireError("model", "must be a name of 1 to 512 printable characters")


def check_completions(field: str, count: int) -> None:
    """Raises WireError where a request has too many completions."""
    if count > MAX_COMPLETIONS:
        raise WireError(
            field, f"has {count} completions, and a request takes {MAX_COMPLETIONS}: send fewer groups at a time"
        )


def check_version(version: str) -> None:
    """Raises WireError unless ``version`` is a name that fits a header, a log line and a metric label."""
    if not _VERSION.fullmatch(version):
        raise WireError("version", "must be 1 to 128 of A-Z a-z 0-9 . _ : @ + / - and start with a letter or digit")


def check_version_path(path: str) -> None:
    """Raises WireError unless ``path`` can be a folder's name in a log line."""
    if not 0 < len(path) <= 4096 or not path.isprintable():
        raise WireError("versionPath", "must be a printable path of 1 to 4096 characters")


def check_offsets(field: str, offsets: Ids, total: int, of: str) -> None:
    """Raises WireError unless offsets start at 0, never fall, and end at ``total``, the size of ``of``."""
    if offsets.ndim != 1 or offsets.size == 0 or offsets[0] != 0:
        raise WireError(field, "must be a one-dimensional array that starts with 0")
    if (offsets[1:] < offsets[:-1]).any():
        raise WireError(field, "must never fall")
    if offsets[-1] != total:
        raise WireError(field, f"must end at the size of {of}, {total}, and ends at {offsets[-1]}")


def check_answers(answer: LogprobsAnswer, expected: Ids) -> None:
    """Raises WireError unless the answer has one log-probability per token of the completions asked about."""
    if not np.array_equal(answer.offsets, expected):
        raise WireError(
            "completion_offsets",
            f"do not fit the request: {answer.offsets.size - 1} completions with {answer.logprobs.size} tokens "
            f"came for {expected.size - 1} with {expected[-1]}, or their lengths differ",
        )
