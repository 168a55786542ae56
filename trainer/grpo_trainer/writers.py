"""Files that metrics and completions are written to: JSON lines, and TensorBoard's event files."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
COMPLETIONS_FILE = "completions.jsonl"
TENSORBOARD_DIR = "tensorboard"


class MetricsWriter:
    """Writes one line per logged step to `metrics.jsonl` and, if asked, to TensorBoard files in `tensorboard/`.

    A run that is resumed appends: of steps that are there twice the later line counts. JSON has no NaN: a value that
    is not finite is written as null, and said once per metric.
    """

    def __init__(self, directory: Path, *, tensorboard: bool, resumed_at: int = 0) -> None:
        """`resumed_at`: steps done before; TensorBoard then hides what an earlier attempt wrote beyond it."""
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / METRICS_FILE).open("a", encoding="utf-8")
        self._not_finite: set[str] = set()
        self._tensorboard: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # takes a second to import

            purge = resumed_at + 1 if resumed_at else None
            self._tensorboard = SummaryWriter(str(directory / TENSORBOARD_DIR), purge_step=purge)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of an optimizer step; they are on disk (flushed) when this returns."""
        line: dict[str, float | int | str | None] = {"step": step, "time": _now()}
        for name, value in metrics.items():
            line[name] = value if math.isfinite(value) else None
            if not math.isfinite(value):
                self._say(name, value, step)
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        if self._tensorboard is not None:
            for name, value in metrics.items():
                if math.isfinite(value):
                    self._tensorboard.add_scalar(name, value, step)
            self._tensorboard.flush()

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _say(self, name: str, value: float, step: int) -> None:
        if name not in self._not_finite:
            self._not_finite.add(name)
            logger.warning("metric %s is %s at step %d: written as null, not said again", name, value, step)


class CompletionsWriter:
    """Writes sampled completions to `completions.jsonl`, one a line."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / COMPLETIONS_FILE).open("a", encoding="utf-8")

    def write(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows with prompt, completion, rewards and advantage; values that JSON lacks are written as text."""
        for row in rows:
            line = {"step": step, **row}
            self._file.write(json.dumps(_finite(line), default=str, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
