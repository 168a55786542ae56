"""A version of the reference: what iterative GRPO counts its replacements in (design §7)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReferenceVersion:
    """Which weights are to score.

    Attributes:
        name: `base`, what the server started with, or what the trainer named it, such as `step-20`.
        path: folder of safetensors that holds them, where the server sees it; None: the server has them.
    """

    name: str
    path: str | None = None

    def __str__(self) -> str:
        return self.name
