"""The end that explains the others; and real (small) processes that end in every way."""

from __future__ import annotations

import io
import itertools
import os
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from grpo_api.rank_processes import RankEnd
from grpo_trainer.supervisor import Supervisor, cause


@pytest.mark.parametrize(
    ("ends", "rank"),
    [
        ([RankEnd(0, 0), RankEnd(1, 0)], 0),
        ([RankEnd(1, 0), RankEnd(0, 0)], 0),
        ([RankEnd(0, 75), RankEnd(1, -9)], 1),
        ([RankEnd(0, 75), RankEnd(1, 1), RankEnd(2, 65)], 2),
        ([RankEnd(0, 1), RankEnd(1, -6)], 0),
        ([RankEnd(1, 64), RankEnd(0, 65)], 1),
        ([RankEnd(0, 75), RankEnd(1, 0)], 0),
        ([RankEnd(2, 75), RankEnd(0, -9, by_us=True), RankEnd(1, -9, by_us=True)], 2),
        ([RankEnd(0, -9, by_us=True), RankEnd(1, 75)], 1),
    ],
)
def test_cause(ends: list[RankEnd], rank: int) -> None:
    assert cause(ends).rank == rank


def test_permanent_beats_all_in_any_order() -> None:
    ends = [RankEnd(0, 75), RankEnd(1, -9), RankEnd(2, 64), RankEnd(3, 0), RankEnd(4, 1)]
    assert {cause(order).rank for order in itertools.permutations(ends)} == {2}


def run(
    programs: dict[int, str], *, settle: float = 30, grace: float = 30, log: Path | None = None
) -> tuple[list[RankEnd], str]:
    """Each rank runs its own program text."""
    out = io.StringIO()
    with (log or Path(os.devnull)).open("ab") as stream:
        supervisor = Supervisor(stream, out, settle)
        start(supervisor, programs)
        return supervisor.wait(grace), out.getvalue()


def start(supervisor: Supervisor, programs: dict[int, str]) -> None:
    program = "import os; exec(os.environ['PROGRAM'])"
    supervisor.start(
        [sys.executable, "-uc", program],
        {rank: {**os.environ, "PROGRAM": textwrap.dedent(text)} for rank, text in programs.items()},
    )


def test_output_goes_to_both_with_the_rank(tmp_path: Path) -> None:
    ends, printed = run({0: "print('one')", 1: "print('two', end='')"}, log=tmp_path / "log")
    assert sorted(printed.splitlines()) == ["[rank 0] one", "[rank 1] two"]
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["[rank 0] one", "[rank 1] two"]
    assert {(end.rank, end.code) for end in ends} == {(0, 0), (1, 0)}


def test_the_others_are_ended_after_the_first_failure() -> None:
    ends, _ = run({0: "import time; time.sleep(600)", 1: "raise SystemExit(65)"}, settle=0.5)
    assert ends == [RankEnd(1, 65), RankEnd(0, -signal.SIGKILL, by_us=True)]


def test_a_rank_that_ends_by_itself_in_time_keeps_its_code() -> None:
    late = "import time; time.sleep(0.3); raise SystemExit(64)"
    ends, _ = run({0: "raise SystemExit(75)", 1: late})
    assert [end.code for end in ends] == [75, 64]
    assert cause(ends).code == 64


def test_sigterm_is_passed_on_and_the_grace_period_ends() -> None:
    polite = "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(75))\nprint('on')\nsignal.pause()"
    deaf = "import signal\nsignal.signal(15, signal.SIG_IGN)\nprint('on')\nwhile True: signal.pause()"
    out = io.StringIO()
    supervisor = Supervisor(None, out, settle_seconds=60)
    start(supervisor, {0: polite, 1: deaf})
    ends: list[RankEnd] = []
    waiting = threading.Thread(target=lambda: ends.extend(supervisor.wait(grace_seconds=1.0)))
    waiting.start()
    deadline = time.monotonic() + 60
    while out.getvalue().count("on") < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    supervisor.terminate()
    waiting.join(60)
    assert ends == [RankEnd(0, 75), RankEnd(1, -signal.SIGKILL, by_us=True)]
