"""Run test suites one after the other and say what ran, what was skipped and why.

usage: suites.py SUITE...

Each suite has a budget in minutes; one that is still running then is ended with all its processes and counts as
failed. All suites run, whatever the earlier ones gave; the exit status is 1 if any failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Suite:
    """One suite: what to run, and how long it may take."""

    name: str
    command: list[str]
    budget_minutes: float
    pytest: bool = True


@dataclass
class Outcome:
    """What came of a suite."""

    suite: Suite
    minutes: float
    ok: bool
    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)
    note: str = ""


def pytest_suite(folder: str, budget_minutes: float, *options: str) -> Suite:
    """Return the suite of one folder of tests."""
    return Suite(folder, [sys.executable, "-m", "pytest", "-q", f"tests/{folder}", *options], budget_minutes)


SUITES = {
    suite.name: suite
    for suite in (
        Suite("lint", [sys.executable, "tools/lint.py"], 5, pytest=False),
        pytest_suite("unit", 8, "-n2", "--dist=loadfile"),
        Suite("programs", ["tools/cluster/build.sh"], 30, pytest=False),
        Suite("engines", ["tools/python/engines.sh", "vllm", "sglang"], 15, pytest=False),
        pytest_suite("integration", 35, "-n2", "--dist=loadfile"),
        Suite("images", ["tools/images/build.sh"], 20, pytest=False),
        pytest_suite("e2e", 30),
        pytest_suite("quickstart", 15),
    )
}


def run(suite: Suite) -> Outcome:
    """Run one suite in a process group of its own, and end the whole group when the budget is spent."""
    print(f"\n=== {suite.name} (budget {suite.budget_minutes:g} min)", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [*suite.command, f"--junitxml={report}"] if suite.pytest else suite.command
        start = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, preexec_fn=_heed_interrupts)
        note = ""
        try:
            code = process.wait(timeout=suite.budget_minutes * 60)
        except subprocess.TimeoutExpired:
            note = f"over its budget of {suite.budget_minutes:g} min: ended"
            code = end(process)
        except BaseException:
            end(process)
            raise
        outcome = Outcome(suite, (time.monotonic() - start) / 60, code == 0, note=note)
        if suite.pytest and report.exists():
            read_report(report, outcome)
    if suite.pytest and not outcome.counts["passed"]:
        outcome.ok = False
        outcome.note = outcome.note or "no test passed"
    return outcome


def _heed_interrupts() -> None:
    """A shell that started us in the background had SIGINT ignored; children would inherit that, and not end by it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end(process: subprocess.Popen[bytes]) -> int:
    """End a process group: SIGINT first, so that fixtures take down what they started, SIGKILL after a minute."""
    for sent, patience in ((signal.SIGINT, 60), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, sent)
            process.wait(timeout=patience)
            break
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    return process.returncode or 1


def read_report(report: Path, outcome: Outcome) -> None:
    """Count the cases of a JUnit report, and keep each skip's reason."""
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            outcome.counts["skipped"] += 1
            outcome.skipped.append(f"{case.get('classname')}::{case.get('name')}: {skipped.get('message')}")
        elif case.find("failure") is not None or case.find("error") is not None:
            outcome.counts["failed"] += 1
        else:
            outcome.counts["passed"] += 1


def report(outcomes: list[Outcome]) -> bool:
    """Print the closing table; return whether all is well."""
    print(f"\n{'suite':<12} {'result':<7} {'passed':>6} {'failed':>6} {'skipped':>7} {'min':>6} {'budget':>6}")
    for outcome in outcomes:
        counts = outcome.counts
        numbers = [str(counts[k]) if outcome.suite.pytest else "-" for k in ("passed", "failed", "skipped")]
        print(
            f"{outcome.suite.name:<12} {'ok' if outcome.ok else 'FAILED':<7} {numbers[0]:>6} {numbers[1]:>6} "
            f"{numbers[2]:>7} {outcome.minutes:>6.1f} {outcome.suite.budget_minutes:>6g}  {outcome.note}".rstrip()
        )
    skipped = [line for outcome in outcomes for line in outcome.skipped]
    if skipped:
        print("\nskipped:", *skipped, sep="\n  ")
    total = sum((outcome.counts for outcome in outcomes), Counter[str]())
    print(f"\n{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return all(outcome.ok for outcome in outcomes)


def main() -> int:
    """Run the suites named on the command line."""
    names = sys.argv[1:]
    unknown = [name for name in names if name not in SUITES]
    if not names or unknown:
        print(f"usage: suites.py SUITE...   suites: {', '.join(SUITES)}", file=sys.stderr)
        return 2
    return 0 if report([run(SUITES[name]) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
