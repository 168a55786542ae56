"""The process in which reward functions run: `python -m grpo_trainer.rewards.worker FD`.

It has its own main thread, so that functions that time themselves by signals (math-verify) work, and can be killed
by the runner when a function hangs. It speaks with the runner over one inherited socket, one pickled message at a
time; both ends are processes of the same rank.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import signal
import sys
import threading
import traceback
from collections import defaultdict
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from grpo_trainer.rewards.errors import RewardErrorKind
from grpo_trainer.rewards.registry import RewardCallable, load
from grpo_trainer.rewards.results import BadRewardsError, to_rewards


@dataclass(frozen=True)
class Load:
    """Import these functions; `code_dir` is searched first."""

    functions: tuple[str, ...]
    code_dir: str | None


@dataclass(frozen=True)
class Call:
    """Call one function for a batch of completions."""

    function: int
    count: int
    arguments: dict[str, Any]
    step: int
    total_steps: int


@dataclass(frozen=True)
class Done:
    """A function's rewards, and what it logged through `log_metric` and `log_extra`."""

    rewards: list[float | None] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=dict)
    extra: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """A function (by its index) failed."""

    function: int
    kind: RewardErrorKind
    detail: str
    traceback: str = ""


def main() -> None:
    """Serve the runner until it closes the socket or ends."""
    # The rank decides when to end (it may still want rewards while it saves after SIGTERM).
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    inbox: queue.SimpleQueue[Load | Call] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    functions: list[RewardCallable] = []
    while True:
        message = inbox.get()
        if isinstance(message, Load):
            connection.send(_load(message, functions))
        else:
            connection.send(_call(message, functions[message.function]))


def _receive(connection: Connection, inbox: queue.SimpleQueue[Load | Call]) -> None:
    """Read in a thread, so that the process ends with the rank even while a function hangs."""
    while True:
        try:
            inbox.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)


def _load(message: Load, functions: list[RewardCallable]) -> Done | Failed:
    if message.code_dir is not None:
        sys.path.insert(0, message.code_dir)
    for index, name in enumerate(message.functions):
        try:
            functions.append(load(name))
        except BaseException as error:  # noqa: BLE001  (a module may raise anything while it is imported)
            return Failed(index, "import", f"cannot be imported: {_line(error)}", traceback.format_exc())
    return Done()


def _call(message: Call, function: RewardCallable) -> Done | Failed:
    metrics: dict[str, list[float]] = defaultdict(list)
    extra: dict[str, list[Any]] = defaultdict(list)
    offered = message.arguments | {
        "trainer_state": SimpleNamespace(global_step=message.step, max_steps=message.total_steps),
        "log_metric": lambda name, value: metrics[str(name)].append(float(value)),
        "log_extra": lambda column, values: extra[str(column)].extend(values),
    }
    try:
        result = function(**_accepted(function, offered))
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        return Done(to_rewards(result, message.count), dict(metrics), dict(extra))
    except BadRewardsError as error:
        return Failed(message.function, "result", str(error))
    except BaseException as error:  # noqa: BLE001  (users' code: SystemExit must not end the worker either)
        return Failed(message.function, "exception", f"raised {_line(error)}", traceback.format_exc())


async def _awaited(result: Any) -> Any:
    return await result


def _accepted(function: RewardCallable, offered: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a function without `**kwargs` does not ask for."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature, such as one written in C
        return offered
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return offered
    return {p.name: offered[p.name] for p in parameters if p.name in offered}


def _line(error: BaseException) -> str:
    """The error in one line, with the place in the function's module where it was raised."""
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__ and "importlib" not in frame.filename]
    return f"{text} ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else text


if __name__ == "__main__":
    # Pickle finds the message classes by module name: run this module under its own name, not as __main__.
    from grpo_trainer.rewards import worker

    worker.main()
