"""The runner with its real worker process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from grpo_api.v1alpha1 import RewardFunction
from grpo_trainer.rewards.errors import RewardError
from grpo_trainer.rewards.runner import RewardResult, RewardRunner

CODE = """
import asyncio, os, sys, time

calls = 0

def length(completions, **kwargs):
    return [len(c) for c in completions]

def everything(prompts, completions, completion_ids, gold, trainer_state, log_metric, log_extra, **rest):
    assert not rest, rest
    log_metric("halfway", trainer_state.global_step / trainer_state.max_steps)
    log_extra("seen", [f"{p}/{c}" for p, c in zip(prompts, completions)])
    return [float(c == g) + len(ids) for c, g, ids in zip(completions, gold, completion_ids)]

def no_kwargs(completions):
    return [1] * len(completions)

async def later(completions, **kwargs):
    await asyncio.sleep(0)
    return [None for _ in completions]

def counts(completions, **kwargs):
    global calls
    calls += 1
    return [calls] * len(completions)

class Scorer:
    def __call__(self, completions, **kwargs):
        return [2.0] * len(completions)

scorer = Scorer()

def raises(completions, **kwargs):
    return [int(c) for c in completions]

def exits(completions, **kwargs):
    sys.exit(3)

def dies(completions, **kwargs):
    os.kill(os.getpid(), 9)

def hangs(completions, **kwargs):
    time.sleep(600)

def hangs_once(completions, marker, **kwargs):
    if not os.path.exists(marker[0]):
        open(marker[0], "w").close()
        time.sleep(600)
    return [1.0] * len(completions)

def too_few(completions, **kwargs):
    return [1.0]

def words(completions, **kwargs):
    return ["good"] * len(completions)

def where(completions, **kwargs):
    return [os.getpid()] * len(completions)
"""


@pytest.fixture
def code_dir(tmp_path: Path) -> Path:
    (tmp_path / "my_rewards.py").write_text(CODE)
    return tmp_path


@contextmanager
def running(code_dir: Path, *functions: str, **options: Any) -> Iterator[RewardRunner]:
    specs = [RewardFunction(function=f"my_rewards:{function}", **options) for function in functions]
    with RewardRunner(specs, code_dir) as runner:
        yield runner


def run(runner: RewardRunner, completions: list[str], **columns: list[Any]) -> RewardResult:
    return runner.run(
        prompts=["p"] * len(completions),
        completions=completions,
        completion_ids=[[1]] * len(completions),
        columns=columns,
        step=5,
        total_steps=10,
    )


def test_one_reward_per_completion_and_function(code_dir: Path) -> None:
    with running(code_dir, "length", "no_kwargs", "later", "scorer") as runner:
        result = run(runner, ["ab", "c"], other=["x", "y"])
    assert result.rewards == [[2.0, 1.0, None, 2.0], [1.0, 1.0, None, 2.0]]
    assert result.errors == []
    assert set(result.seconds) == {"length", "no_kwargs", "later", "scorer"} == set(runner.names)


def test_arguments_are_those_of_trl(code_dir: Path) -> None:
    with running(code_dir, "everything") as runner:
        result = run(runner, ["ab", "c"], gold=["ab", "x"])
    assert result.rewards == [[2.0], [1.0]]
    assert result.metrics == {"halfway": [0.5]}
    assert result.extra == {"seen": ["p/ab", "p/c"]}


def test_built_in_functions_run_in_the_worker() -> None:
    functions = [RewardFunction(function="accuracy", weight=2.0), RewardFunction(function="format")]
    with RewardRunner(functions) as runner:
        result = run(runner, [r"<think>x</think><answer>\boxed{4}</answer>", "5"], solution=["4", "5"])
    assert result.rewards == [[1.0, 1.0], [0.0, 0.0]]
    assert runner.weights == (2.0, 1.0)
    assert runner.names == ("accuracy", "format")


def test_state_lasts_between_calls(code_dir: Path) -> None:
    with running(code_dir, "counts") as runner:
        assert [run(runner, ["a"]).rewards for _ in range(3)] == [[[1.0]], [[2.0]], [[3.0]]]


def test_no_completions_no_call(code_dir: Path) -> None:
    with running(code_dir, "raises") as runner:
        assert run(runner, []).rewards == []


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        ("raises", "exception", r"raised ValueError: invalid literal .* \(my_rewards.py:\d+\)"),
        ("exits", "exception", r"raised SystemExit: 3 \(my_rewards.py:\d+\)"),
        ("too_few", "result", "returned 1 rewards for 2 completions; expected one for each"),
        ("words", "result", r"returned 'good' \(str\) as reward of completion 0"),
        ("dies", "died", r"its process was ended by SIGKILL \(out of memory\?\)"),
    ],
)
def test_failures_name_the_function(code_dir: Path, function: str, kind: str, message: str) -> None:
    with running(code_dir, "length", function) as runner:
        with pytest.raises(RewardError, match=f"^reward function my_rewards:{function}: {message}") as caught:
            run(runner, ["a", "b"])
        assert caught.value.kind == kind
        assert caught.value.function == f"my_rewards:{function}"
        # The runner goes on, with a new worker if need be.
        with pytest.raises(RewardError):
            run(runner, ["a", "b"])


def test_an_exception_carries_its_traceback(code_dir: Path) -> None:
    with running(code_dir, "raises") as runner, pytest.raises(RewardError) as caught:
        run(runner, ["a"])
    assert caught.value.last_line == "ValueError: invalid literal for int() with base 10: 'a'"
    assert "return [int(c) for c in completions]" in caught.value.traceback


@pytest.mark.parametrize("function", ["raises", "exits", "too_few", "words", "dies", "hangs"])
def test_zero_instead_of_failing(code_dir: Path, function: str) -> None:
    with running(code_dir, "length", function, "scorer", on_error="zero", timeout_seconds=2) as runner:
        result = run(runner, ["a", "bc"])
    assert result.rewards == [[1.0, 0.0, 2.0], [2.0, 0.0, 2.0]]
    assert [error.function for error in result.errors] == [f"my_rewards:{function}"]


def test_a_function_that_hangs_is_stopped(code_dir: Path) -> None:
    with running(code_dir, "hangs", timeout_seconds=0.5) as runner:
        with pytest.raises(
            RewardError, match=r"gave no rewards within timeoutSeconds 0\.5 s and was stopped"
        ) as caught:
            run(runner, ["a"])
        assert caught.value.kind == "timeout"


def test_after_a_hang_the_worker_starts_anew(code_dir: Path, tmp_path: Path) -> None:
    with running(code_dir, "hangs_once", on_error="zero", timeout_seconds=2) as runner:
        marker = [str(tmp_path / "marker")]
        assert run(runner, ["a"], marker=marker).rewards == [[0.0]]
        assert run(runner, ["a"], marker=marker).rewards == [[1.0]]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("my_rewards:missing", "cannot be imported: AttributeError: module 'my_rewards' has no attribute 'missing'"),
        ("no_such_module:f", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("broken:f", r"cannot be imported: ZeroDivisionError: division by zero \(broken.py:1\)"),
    ],
)
def test_import_failures_come_at_the_start(code_dir: Path, function: str, message: str) -> None:
    (code_dir / "broken.py").write_text("1 / 0\n")
    runner = RewardRunner([RewardFunction(function="format"), RewardFunction(function=function)], code_dir)
    with pytest.raises(RewardError, match=f"^reward function {function}: {message}") as caught:
        runner.start()
    assert caught.value.kind == "import"


def test_the_worker_is_gone_after_close_and_survives_signals_meant_for_the_rank(code_dir: Path) -> None:
    with running(code_dir, "where") as runner:
        pid = int(run(runner, ["a"]).rewards[0][0] or 0)
        assert pid not in (0, os.getpid())
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, number)
        assert run(runner, ["a"]).rewards == [[float(pid)]]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_worker_ends_with_its_rank_even_while_a_function_hangs(code_dir: Path) -> None:
    """A rank that is killed outright leaves no process behind."""
    script = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from grpo_api.v1alpha1 import RewardFunction\n"
        "from grpo_trainer.rewards.runner import RewardRunner\n"
        f"r = RewardRunner([RewardFunction(function='my_rewards:hangs')], Path({str(code_dir)!r}))\n"
        "r.start()\n"
        "threading.Thread(target=lambda: r.run(prompts=['p'], completions=['c'], completion_ids=[[1]], columns={}),"
        " daemon=True).start()\n"
        "print(r._process.pid, flush=True)\n"
        "threading.Event().wait(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdout is not None
        worker = int(rank.stdout.readline())
        rank.kill()
    deadline = time.monotonic() + 20
    while is_running(worker):
        assert time.monotonic() < deadline, "the worker outlived its rank by 20 s"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
