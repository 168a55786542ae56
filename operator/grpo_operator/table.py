"""The progress of a local run on a terminal: a live table, and above it the story line by line."""

import time
from collections.abc import Callable
from datetime import datetime

from grpo_api.progress import Progress
from grpo_api.v1alpha1 import GRPOJob
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from grpo_operator.state import Event, Observed

_PLAIN_EVERY = 5.0
"""Seconds between two progress lines where there is no terminal."""
_COLOURS = {"Running": "green", "Succeeded": "green", "Failed": "red", "Restarting": "yellow"}


class Display:
    """Shows a run. On a terminal the table is redrawn in place; elsewhere (a file, CI) there are only lines."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._start = clock()
        # No thread of its own: processes are forked from here.
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._told_at = -_PLAIN_EVERY
        self._told_step: tuple[int, int] | None = None

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, job: GRPOJob, observed: Observed, events: tuple[Event, ...]) -> None:
        """Show the present state; see `grpo_operator.local.runner.Watcher`."""
        for event in events:
            style = "yellow" if event.type == "Warning" else ""
            self._console.print(Text(f"{datetime.now():%H:%M:%S} {event.reason:<18} {event.message}", style=style))
        progress = present(job, observed)
        if self._live:
            self._live.update(render(job, progress, self._clock() - self._start), refresh=True)
        elif progress is not None:
            self._plain(progress)

    def _plain(self, progress: Progress) -> None:
        step, now = (progress.attempt, progress.step), self._clock()
        ended = progress.step == progress.total_steps
        if step == self._told_step or progress.step == 0 or (now - self._told_at < _PLAIN_EVERY and not ended):
            return
        self._told_step, self._told_at = step, now
        words = "  ".join(f"{name} {value}" for name, value in numbers(progress))
        self._console.print(Text(f"{datetime.now():%H:%M:%S} step {progress.step}/{progress.total_steps}  {words}"))


def present(job: GRPOJob, observed: Observed) -> Progress | None:
    """Return the progress of the present attempt, if it has told any."""
    progress, trainer = observed.progress, job.status.trainer
    return progress if progress is not None and trainer is not None and progress.attempt == trainer.attempt else None


def render(job: GRPOJob, progress: Progress | None, elapsed: float) -> Table:
    """Return the table."""
    status = job.status
    phase = status.phase or "Pending"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("job", Text(f"{job.metadata.name}  {_duration(elapsed)}"))
    table.add_row("phase", Text(f"{phase}  {status.reason or ''}", style=_COLOURS.get(phase, "")))
    if phase != "Running" and status.message:
        table.add_row("", Text(status.message))
    if status.trainer:
        limit = job.spec.failure_policy.max_restarts
        table.add_row("attempt", Text(f"{status.trainer.attempt}  restarts {status.restarts} of {limit}"))
    if progress is not None:
        total = progress.total_steps
        if total:
            table.add_row("step", ProgressBar(total=total, completed=progress.step, width=40))
        table.add_row("", Text(f"{progress.step}/{total or '?'}  {progress.phase}"))
        for name, value in numbers(progress):
            table.add_row(name, Text(value))
    return table


def numbers(progress: Progress) -> list[tuple[str, str]]:
    """Return the numbers that are known, as (name, text)."""
    known = [
        ("reward", progress.reward, "{:.4f}"),
        ("kl", progress.kl, "{:.5f}"),
        ("loss", progress.loss, "{:.5f}"),
        ("tokens/s", progress.tokens_per_second, "{:.0f}"),
        ("checkpoint", progress.checkpoint_step, "step {}"),
    ]
    found = [(name, form.format(value)) for name, value, form in known if value is not None]
    if progress.eta_seconds is not None:
        found.append(("left", _duration(progress.eta_seconds)))
    return found


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
