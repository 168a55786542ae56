"""Measure the reference server against the other ways to score, all in one run. `make bench-reference`.

usage: python -m tests.bench.reference [--device cpu|cuda] [--quick] [--repetitions N] [--threads N] [--output FILE]

Real weights (SmolLM2-135M-Instruct), real prompts and answers (`prompts`), repetitions of all sides interleaved, all
with the same number of threads. Every side's values are compared first of all: a fast wrong answer cannot win. Exits
with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "tests/bench/results/reference.json"
QUICK_RESULTS = ROOT / "runs/bench/reference-quick.json"


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repetitions", type=int, help="default: 5, with --quick 2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side, on a CPU")
    parser.add_argument("--quick", action="store_true", help="small rows, to see that everything runs: proves nothing")
    parser.add_argument("--no-vllm", action="store_true", help="leave vLLM out though it is there")
    parser.add_argument("--only", help="only the cases whose name holds this, and nothing else")
    parser.add_argument("--output", type=Path, help=f"default: {RESULTS.relative_to(ROOT)}; with --quick in runs/")
    values = parser.parse_args()
    values.repetitions = values.repetitions or (2 if values.quick else 5)
    output = values.output or (QUICK_RESULTS if values.quick or values.only else RESULTS)
    os.environ["OMP_NUM_THREADS"] = str(values.threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    from tests.bench.reference import results, run

    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        rows, left_out = run.run(values, Path(folder), stack)
    more: dict[str, Any] = {
        "device": values.device,
        "dtype": run.DTYPES[values.device],
        "threads": values.threads,
        "repetitions": values.repetitions,
        "quick": values.quick,
        "seconds": round(time.monotonic() - begun),
        "loadBefore": round(run.LOAD, 2),
    }
    results.write(output, results.machine(**more), rows, left_out)
    print("\n" + "\n".join(map(str, rows)))
    for reason in left_out:
        print(f"left out: {reason}")
    missed = [row.name for row in rows if row.missed]
    print(f"\n{len(rows)} rows in {more['seconds']} s, {len(missed)} missed: {', '.join(missed) or 'none'}; {output}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
