"""Grade-school arithmetic with checkable answers (the package reasoning-gym), in NuminaMath's columns."""

from __future__ import annotations

import json
from pathlib import Path


def write_arithmetic(path: Path, size: int = 64, seed: int = 42) -> None:
    """Write `size` problems as jsonl with the columns `problem` and `solution`."""
    import reasoning_gym

    items = reasoning_gym.create_dataset("gsm_symbolic", size=size, seed=seed)
    rows = ({"problem": item["question"], "solution": f"\\boxed{{{item['answer']}}}"} for item in items)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
