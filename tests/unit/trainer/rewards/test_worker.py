from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "transformers", "datasets", "deepspeed", "pydantic")


def test_the_worker_loads_no_heavy_library() -> None:
    """One runs beside every rank: it must start fast and stay small, built-in rewards included."""
    code = (
        "import sys, grpo_trainer.rewards.worker, grpo_trainer.rewards.accuracy, grpo_trainer.rewards.format\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
