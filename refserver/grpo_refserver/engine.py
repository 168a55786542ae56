"""What the worker asks of a model: score, and be replaced by another version of itself."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.groups import Group
from grpo_scoring.logprobs import CompletionLogprobs

from grpo_refserver.model import LoadedModel


class Refusal(enum.Enum):
    """Why a version cannot be had, by what can cure it."""

    UNKNOWN = "unknown"
    """No path came with the name: another request can."""
    BAD = "bad"
    """The path or what lies there can never be served here: nothing but another folder helps."""
    UNAVAILABLE = "unavailable"
    """Not to be read now (not visible yet, a file system or hub that fails, no memory): the same request can
    succeed later."""


class VersionError(Exception):
    """A version cannot be loaded; the one before goes on serving. The message says why and what to do.

    Attributes:
        refusal: whether trying again can help.
        field: the part of the request that is wrong.
    """

    def __init__(self, message: str, refusal: Refusal = Refusal.BAD, field: str = "versionPath") -> None:
        super().__init__(message)
        self.refusal = refusal
        self.field = field


class EngineFailedError(Exception):
    """The engine is of no more use in this process, which must end."""


@dataclasses.dataclass(frozen=True, eq=False)
class Staged:
    """A version that is loaded beside the one that serves, checked, and ready to take its place.

    Attributes:
        version: its name.
        payload: what the engine that staged it needs for the swap; nobody else looks at it.
    """

    version: str
    payload: Any = None


class Engine(Protocol):
    """A model on one device or several.

    ``score``, ``swap`` and ``close`` are called by the model thread alone, one at a time; ``stage`` by one other
    thread, while batches are scored.
    """

    info: LoadedModel
    """What serves now; replaced by a swap."""

    def batch_tokens(self, sizes: GroupSizes) -> int:
        """What one group takes of ``maxBatchTokens``. Called by any thread."""
        ...

    def score(self, groups: Sequence[Group], temperature: float) -> CompletionLogprobs:
        """Log-probabilities of every completion token, in the groups' order."""
        ...

    def stage(self, version: str, path: Path | None) -> Staged:
        """Loads a version from a folder (None: what the server started with) and checks it.

        Slow. At most one staged version is kept: an earlier one that was never swapped in may be dropped.

        Raises:
            VersionError: it cannot be served; nothing has changed.
        """
        ...

    def swap(self, staged: Staged) -> None:
        """Puts a staged version in the place of the one that serves. An exception leaves the engine unusable."""
        ...

    def close(self) -> None:
        """Lets go of what it holds; the engine is not used again."""
        ...
