"""The rows that are kept: what was measured, what was wanted, under which conditions."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.reference.timing import Spread

AT_LEAST, AT_MOST = "at least", "at most"


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        name: what it is.
        ratio: the median.
        target: what is wanted; None where nothing is.
        sense: whether the target is a least or a largest value.
        least, most: over the repetitions.
        conditions: lengths, medians in seconds and the like.
    """

    name: str
    ratio: float
    target: float | None
    sense: str
    least: float
    most: float
    conditions: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, spread: Spread, target: float | None, sense: str = AT_LEAST, **conditions: Any) -> Row:
        values = (float(f"{value:.4g}") for value in (spread.median, spread.least, spread.most))
        median, least, most = values
        return cls(name, median, None if target is None else float(f"{target:.3g}"), sense, least, most, conditions)

    @property
    def missed(self) -> bool:
        """Whether there is a target, and it was not reached."""
        if self.target is None:
            return False
        return not (self.ratio >= self.target if self.sense == AT_LEAST else self.ratio <= self.target)

    def __str__(self) -> str:
        wanted = "" if self.target is None else f"  ({self.sense} {self.target:g}{', MISSED' if self.missed else ''})"
        return f"{self.name}: {self.ratio:g}  [{self.least:g} to {self.most:g}]{wanted}"


def machine(**more: Any) -> dict[str, Any]:
    """What the figures were measured on."""
    import torch
    import transformers

    cpu = next((line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")), "unknown")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        **more,
    }


def write(path: Path, conditions: dict[str, Any], rows: list[Row], left_out: list[str]) -> None:
    """Write the rows of this device; those of another one that the file holds stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(path.read_text())["runs"] if path.exists() else {}
    runs[conditions["device"]] = {
        "conditions": conditions,
        "leftOut": left_out,
        "rows": [asdict(row) | {"missed": row.missed} for row in rows],
    }
    path.write_text(json.dumps({"runs": runs}, indent=2) + "\n")


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
