"""Figures that tests print and keep: name, value, unit, target and conditions, as JSON. Never asserted by the clock."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Measurement:
    """One figure."""

    name: str
    value: float
    unit: str
    target: float | None = None
    """At most this much is wanted."""


@dataclass
class Measurements:
    """The figures of one session of tests."""

    path: Path
    rows: list[Measurement] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str, target: float | None = None) -> None:
        """Keep a figure, and print it."""
        row = Measurement(name, round(value, 3), unit, target)
        self.rows.append(row)
        wanted = "" if target is None else f" (wanted: at most {target:g})"
        print(f"\nmeasured: {name}: {row.value:g} {unit}{wanted}", flush=True)

    def write(self) -> None:
        """Write all figures with the machine's conditions."""
        conditions = {"cores": os.cpu_count(), "machine": platform.machine(), "kernel": platform.release()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = {"conditions": conditions, "rows": [asdict(row) for row in self.rows]}
        self.path.write_text(json.dumps(document, indent=2) + "\n")
