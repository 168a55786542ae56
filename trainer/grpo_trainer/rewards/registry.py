"""Names → reward functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

RewardCallable = Callable[..., Any]
"""`f(prompts, completions, completion_ids, **columns) -> list[float | None]`, as TRL's custom reward functions;
may be `async`. See `runner` for the arguments."""

BUILT_IN: dict[str, str] = {
    "accuracy": "grpo_trainer.rewards.accuracy:accuracy",
    "format": "grpo_trainer.rewards.format:think_answer_format",
}
"""Short names of spec.rewards.functions[].function."""


def split_name(name: str) -> tuple[str, str]:
    """Return module and attribute of a built-in name or of `module:function`; raise ValueError for anything else."""
    module, colon, attribute = BUILT_IN.get(name, name).partition(":")
    if not (colon and module and attribute):
        raise ValueError(
            f"{name!r} is neither built in ({', '.join(sorted(BUILT_IN))}) nor of the form module:function"
        )
    return module, attribute


def load(name: str) -> RewardCallable:
    """Import a reward function by name.

    Raises:
        ValueError: the name has no known form.
        ImportError, AttributeError, or whatever the module raises while it is imported.
        TypeError: the attribute cannot be called.
    """
    module, attribute = split_name(name)
    function: Any = importlib.import_module(module)
    for part in attribute.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise TypeError(f"{name} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def metric_names(functions: Sequence[str]) -> tuple[str, ...]:
    """Short, distinct names for the metrics `rewards/<name>/mean`: the function's own name where that is unique."""
    short = [name if name in BUILT_IN else name.rpartition(":")[2] for name in functions]
    names: list[str] = []
    for name, own in zip(functions, short, strict=True):
        candidate = own if short.count(own) == 1 else name.replace(":", ".")
        count = 2
        unique = candidate
        while unique in names:
            unique = f"{candidate}-{count}"
            count += 1
        names.append(unique)
    return tuple(names)
