"""`python -m grpo_trainer.plot METRICS_JSONL PNG`: draw reward, KL and completion length over the steps."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

Rows = list[dict[str, float | None]]

PANELS = (
    ("reward", "reward (mean of a generation batch)"),
    ("kl", "KL against the reference (nats per token)"),
    ("completions/mean_length", "completion length (tokens, mean)"),
)


def read_rows(path: Path) -> Rows:
    """Read metrics.jsonl, one object a line; of a step written twice (after a restart) the later line counts.

    Raises:
        ValueError: a line is not JSON; it names the line. (The last line may be cut short: a run may still write.)
    """
    lines = path.read_text().splitlines()
    rows: dict[float, dict[str, float | None]] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number} is not JSON") from None
        rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]


def series(rows: Rows, name: str) -> tuple[list[float], list[float]]:
    """Return the steps and values of one metric, without the steps that lack it."""
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    return [float(step or 0) for step, _ in points], [float(value or 0) for _, value in points]


def draw(rows: Rows, path: Path, title: str) -> None:
    """Write the plot as a PNG file; metrics that the run lacks (KL with beta 0) get no panel."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [(name, label, *series(rows, name)) for name, label in PANELS]
    panels = [panel for panel in panels if panel[2]]
    if not panels:
        raise ValueError("no step has been logged yet: nothing to draw")
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(7, 2.4 * len(panels)), sharex=True, squeeze=False)
    for axis, (_, label, steps, values) in zip(axes[:, 0], panels, strict=True):
        axis.plot(steps, values, marker="." if len(steps) < 100 else None, linewidth=1.2)
        axis.set_title(label, loc="left", fontsize=9)
        axis.grid(alpha=0.3)
    axes[-1, 0].set_xlabel("optimizer step")
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main() -> None:
    """Draw one run."""
    parser = argparse.ArgumentParser(prog="python -m grpo_trainer.plot", description=__doc__)
    parser.add_argument("metrics", type=Path, help="metrics.jsonl of a run")
    parser.add_argument("png", type=Path, help="file to write")
    parser.add_argument("--title", default="GRPO", help="title of the plot (default: GRPO)")
    options = parser.parse_args()
    draw(read_rows(options.metrics), options.png, options.title)


if __name__ == "__main__":
    main()
