"""The JSON reason that a process ends with, in the termination log."""

from __future__ import annotations

import logging
from pathlib import Path

from . import env
from .progress import Termination

logger = logging.getLogger(__name__)


def write_termination(termination: Termination, path: Path | None) -> None:
    """Write the reason; where no file is named, to Kubernetes' default one if it is there. Never raises OSError."""
    if path is None:
        path = Path(env.DEFAULT_TERMINATION_LOG)
        if not path.exists():  # not in a pod
            return
    try:
        path.write_text(termination.to_log(), encoding="utf-8")
    except OSError as error:
        logger.warning("the termination log %s cannot be written: %s", path, error)


def read_termination(path: Path) -> Termination | None:
    """Read a reason; None where there is none, or none that can be read."""
    try:
        return Termination.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
