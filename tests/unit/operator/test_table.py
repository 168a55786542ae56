"""The live table and the plain lines."""

import io

from grpo_api.v1alpha1 import Status, TrainerStatus
from grpo_operator.state import Event
from grpo_operator.table import Display, numbers, render
from rich.console import Console

from tests.unit.operator.world import make_job, observe, progress, running

STATUS = Status(phase="Running", reason="Training", restarts=1, trainer=TrainerStatus(attempt=1, ready=2, desired=2))


def test_the_table_shows_phase_steps_and_numbers():
    console = Console(width=100, file=io.StringIO(), record=True)
    told = progress(2, 1, kl=0.01, tokens_per_second=1234.5, eta_seconds=3700)
    console.print(render(make_job(status=STATUS), told, 75))
    text = console.export_text()
    for words in ("demo  1m15s", "Running  Training", "1  restarts 1 of 3", "2/5", "0.5000", "0.01000", "1h01m"):
        assert words in text


def test_before_any_progress_it_says_what_is_waited_for():
    console = Console(width=100, file=io.StringIO(), record=True)
    status = Status(phase="Starting", reason="ReferenceStarting", message="the reference loads")
    console.print(render(make_job(status=status), None, 1))
    assert "the reference loads" in console.export_text()


def test_without_a_terminal_there_are_events_and_a_line_every_five_seconds():
    out = io.StringIO()
    now = [0.0]
    job = make_job(status=STATUS)
    with Display(Console(file=out, width=200), clock=lambda: now[0]) as display:
        display(job, observe(), (Event("Normal", "Training", "attempt 1 trains"),))
        for second in range(12):
            now[0] = float(second)
            display(job, observe(running(1), progress=progress(second + 1, 1, total_steps=12)), ())
    lines = out.getvalue().splitlines()
    assert "Training           attempt 1 trains" in lines[0]
    assert [line.split()[2] for line in lines[1:]] == ["1/12", "6/12", "11/12", "12/12"]


def test_progress_of_another_attempt_is_not_shown():
    out = io.StringIO()
    with Display(Console(file=out, width=200)) as display:
        display(make_job(status=STATUS), observe(running(1), progress=progress(3, 0)), ())
    assert out.getvalue() == ""


def test_unknown_numbers_are_left_out():
    assert numbers(progress(1, reward=None)) == []
