"""Interleaved repetitions: what slows the machine down slows every side down."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Side(Generic[Result]):
    """One side's repetitions.

    Attributes:
        seconds: wall time of each.
        results: what each returned.
    """

    seconds: list[float]
    results: list[Result]


@dataclass(frozen=True)
class Spread:
    """Median, least and largest of some repetitions."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def interleave(
    sides: Mapping[str, Callable[[], Result]], repetitions: int, say: Callable[[str], None] = lambda _: None
) -> dict[str, Side[Result]]:
    """Run every side once per repetition, each time beginning with another one."""
    names = list(sides)
    done: dict[str, Side[Result]] = {name: Side([], []) for name in names}
    for repetition in range(repetitions):
        turn = repetition % len(names)
        for name in [*names[turn:], *names[:turn]]:
            begun = time.perf_counter()
            result = sides[name]()
            done[name].seconds.append(time.perf_counter() - begun)
            done[name].results.append(result)
        say("  " + ", ".join(f"{name} {side.seconds[-1]:.2f} s" for name, side in done.items()))
    return done


def speed_up(slow: Sequence[float], fast: Sequence[float]) -> Spread:
    """How many times faster, repetition by repetition."""
    return Spread.of([there / here for there, here in zip(slow, fast, strict=True)])
