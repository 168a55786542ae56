"""Runs all reward functions of a job, each with its time limit, in one worker process per rank."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from grpo_api.v1alpha1 import RewardFunction

from grpo_trainer.rewards.errors import RewardError
from grpo_trainer.rewards.registry import metric_names
from grpo_trainer.rewards.worker import Call, Done, Failed, Load

logger = logging.getLogger(__name__)

START_SECONDS = 600.0
"""Limit for importing all functions (a module may load a model of its own)."""


@dataclass
class RewardResult:
    """Rewards of one rank's completions."""

    rewards: list[list[float | None]]
    """One list per completion, one entry per function; None where the function had nothing to say."""
    errors: list[RewardError] = field(default_factory=list)
    """Failures that `onError: zero` turned into rewards of 0."""
    metrics: dict[str, list[float]] = field(default_factory=dict)
    """What functions logged by `log_metric(name, value)`."""
    extra: dict[str, list[Any]] = field(default_factory=dict)
    """Columns that functions logged by `log_extra(column, values)`, for the table of completions."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time per function."""


class RewardRunner:
    """The reward functions of a job.

    Functions are called as TRL calls custom reward functions: by keyword, with `prompts`, `completions` (strings,
    or lists of one assistant message where prompts are messages), `completion_ids`, every other dataset column as
    a list, `trainer_state` (global_step, max_steps), `log_metric` and `log_extra`. They may be `async`, keep state
    between calls (until one of them hangs), and leave out `**kwargs`.
    """

    def __init__(self, functions: Sequence[RewardFunction], code_dir: Path | None = None) -> None:
        self.functions = tuple(functions)
        self.names = metric_names([function.function for function in functions])
        self.weights = tuple(function.weight for function in functions)
        self._code_dir = code_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the worker and import the functions.

        Raises:
            RewardError: one cannot be imported; it names the function and the traceback's last line.
        """
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "grpo_trainer.rewards.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        load = Load(
            tuple(function.function for function in self.functions),
            None if self._code_dir is None else str(self._code_dir),
        )
        answer = self._ask(load, function=0, seconds=START_SECONDS)
        if isinstance(answer, Failed):
            self.close()
            raise self._error(answer)

    def run(
        self,
        *,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        columns: Mapping[str, Sequence[Any]],
        step: int = 0,
        total_steps: int = 0,
    ) -> RewardResult:
        """Score a batch of completions with every function, one after the other.

        Raises:
            RewardError: a function with `onError: fail` failed.
        """
        arguments = {
            **{name: list(values) for name, values in columns.items()},
            "prompts": list(prompts),
            "completions": list(completions),
            "completion_ids": [list(ids) for ids in completion_ids],
        }
        result = RewardResult([[] for _ in completions])
        for index, function in enumerate(self.functions):
            started = time.monotonic()
            answer: Done | Failed = Done([])
            if completions:
                if self._connection is None:
                    self.start()  # the worker was killed because a function hung
                answer = self._ask(
                    Call(index, len(completions), arguments, step, total_steps), index, function.timeout_seconds
                )
            if isinstance(answer, Failed):
                error = self._error(answer)
                if function.on_error == "fail":
                    raise error
                logger.warning("%s; its rewards are 0 (onError: zero)", error)
                result.errors.append(error)
                answer = Done([0.0] * len(completions))
            for row, reward in zip(result.rewards, answer.rewards, strict=True):
                row.append(reward)
            for name, logged in answer.metrics.items():
                result.metrics.setdefault(name, []).extend(logged)
            result.extra.update(answer.extra)
            result.seconds[self.names[index]] = time.monotonic() - started
        return result

    def close(self) -> None:
        """End the worker; nothing happens where there is none."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # it has nothing to save, and a function may hang
            self._process.wait()
            self._process = None

    def _ask(self, message: Load | Call, function: int, seconds: float) -> Done | Failed:
        """Send a message and wait for its answer; a worker that is late or dead becomes a Failed."""
        assert self._connection is not None
        kind: Literal["timeout", "died"] = "died"
        try:
            self._connection.send(message)
            if self._connection.poll(seconds):
                answer = self._connection.recv()
                assert isinstance(answer, Done | Failed)
                return answer
            kind = "timeout"
        except (EOFError, ConnectionError):
            pass
        if kind == "timeout":
            self.close()
            what = "gave no rewards within timeoutSeconds" if isinstance(message, Call) else "was not imported within"
            return Failed(function, kind, f"{what} {seconds:g} s and was stopped")
        detail = self._obituary()
        self.close()
        return Failed(function, kind, detail)

    def _obituary(self) -> str:
        assert self._process is not None
        code = self._process.wait(timeout=10)
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return f"its process was ended by {name}{hint}"
        return f"its process ended with exit code {code}"

    def _error(self, failed: Failed) -> RewardError:
        return RewardError(self.functions[failed.function].function, failed.kind, failed.detail, failed.traceback)
