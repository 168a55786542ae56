"""What a reward function returned → one float or None per completion."""

from __future__ import annotations

import math
from typing import Any


class BadRewardsError(ValueError):
    """The returned value is not one finite number or None per completion; the message says what it is instead."""


def to_rewards(value: Any, count: int) -> list[float | None]:
    """Check and convert a reward function's result.

    Lists, tuples, numpy arrays and torch tensors of numbers (bool counts as 0 or 1) and None are taken. NaN means
    the same as None, as in TRL.

    Raises:
        BadRewardsError: anything else, a wrong number of values, or an infinite one.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise BadRewardsError(f"returned {_name(value)}; expected a list with one number or None per completion")
    if len(value) != count:
        raise BadRewardsError(f"returned {len(value)} rewards for {count} completions; expected one for each")
    return [_to_reward(reward, position) for position, reward in enumerate(value)]


def _to_reward(reward: Any, position: int) -> float | None:
    if hasattr(reward, "item"):  # a numpy or torch scalar
        reward = reward.item()
    if reward is None:
        return None
    if not isinstance(reward, bool | int | float):
        raise BadRewardsError(f"returned {_name(reward)} as reward of completion {position}; expected a number or None")
    if math.isinf(reward):
        raise BadRewardsError(f"returned {reward} as reward of completion {position}; expected a finite number")
    return None if math.isnan(reward) else float(reward)


def _name(value: Any) -> str:
    return "None" if value is None else f"{value!r:.60} ({type(value).__name__})"
