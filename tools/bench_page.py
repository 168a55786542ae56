"""The benchmark's page in docs, made from the figures that `make bench-reference` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HEAD = """\
<!-- Made by tools/generate.py from tests/bench/results/reference.json. -->
# The reference server against other ways to score

`make bench-reference` measures all sides in one run, their repetitions interleaved, with the same number of threads
each: SmolLM2-135M-Instruct, prompts and answers of the data set champ-dataset, tokenised. A row's figure is the median
of its repetitions' ratios; in brackets the least and the largest.

- **full logits**: one row per completion, logits of all positions, log-softmax: what the remote app of TRL's pull
  request 2763 and simple_GRPO do, here in one process, with no transport of logits.
- **chunked head**: one row per completion, the head on completion positions alone, a few at a time. TRL 1.16 does this
  on a GPU; on a CPU it projects every position, which would flatter us, so this is the stronger way.
- **in process**: `grpo_scoring.scorer.Scorer`.
- **HTTP**: the same in a `grpo-refserver` process, asked by the trainer's client, client included.

Sizes are prompt / completion / completions per prompt, in tokens. The ratio of tokens, G·(P + C) / (P + G·C), is what
computing a prompt once can give at most in the layers below the head.
"""


def bench_page(path: Path) -> str:
    """Return the page of the file's runs, one section per device."""
    runs: dict[str, Any] = json.loads(path.read_text())["runs"]
    parts = [HEAD]
    for device in ("cpu", "cuda"):
        title = {"cpu": "CPU", "cuda": "GPU"}[device]
        parts.append(_section(title, runs[device]) if device in runs else f"\n## {title}\n\nNot measured on {title}.\n")
    return "".join(parts)


def _section(title: str, run: dict[str, Any]) -> str:
    at = run["conditions"]
    lines = [
        f"\n## {title}\n",
        f"{at['cpu']}, {at['threads']} threads, {at['dtype']}, torch {at['torch']}, transformers {at['transformers']}; "
        f"{at['repetitions']} repetitions; {at['seconds'] / 60:.0f} minutes.\n",
        "| what | ratio | spread | wanted | |",
        "|---|---|---|---|---|",
    ]
    for row in run["rows"]:
        wanted = "–" if row["target"] is None else f"{row['sense']} {row['target']:g}"
        verdict = "" if row["target"] is None else ("**missed**" if row["missed"] else "reached")
        spread = f"{row['least']:g} to {row['most']:g}"
        lines.append(f"| {row['name']} | {row['ratio']:g} | {spread} | {wanted} | {verdict} |")
    lines += ["", "Median seconds, and the ratio of tokens:", "", *_seconds(run["rows"])]
    lines += [f"\nLeft out: {reason}." for reason in run["leftOut"]]
    return "\n".join(lines) + "\n"


def _seconds(rows: list[dict[str, Any]]) -> list[str]:
    """One line per case."""
    cases = {row["name"].rpartition(": ")[0]: row["conditions"] for row in rows if "tokenRatio" in row["conditions"]}
    sides = list(dict.fromkeys(side for at in cases.values() for side in at["seconds"]))
    lines = [f"| case | ratio of tokens | {' | '.join(sides)} |", "|---" * (len(sides) + 2) + "|"]
    for name, at in cases.items():
        cells = " | ".join(f"{at['seconds'][side]:.2f}" if side in at["seconds"] else "–" for side in sides)
        lines.append(f"| {name} | {at['tokenRatio']:.2f} | {cells} |")
    return lines
