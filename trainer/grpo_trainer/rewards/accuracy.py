"""The built-in reward `accuracy`: does the completion's answer equal the dataset's, as mathematics?"""

from __future__ import annotations

import logging
import threading
from typing import Any

from latex2sympy2_extended import NormalizationConfig  # type: ignore[import-untyped]
from math_verify import LatexExtractionConfig, parse, verify

from grpo_trainer.rewards.text import text_of

PARSE_SECONDS = 10
VERIFY_SECONDS = 5
"""Limits for one completion (TRL's); a completion that takes longer counts as wrong."""

GOLD_COLUMNS = ("solution", "answer")
"""Dataset columns that may hold the right answer; the first that is there is read."""


def accuracy(completions: list[Any], **columns: Any) -> list[float | None]:
    r"""1.0 where the completion's answer equals the column `solution` (else `answer`), 0.0 where not.

    None where the column's text holds no answer that math-verify can read (semantics of TRL 1.16's
    `accuracy_reward`). The completion's answer is looked for in LaTeX, `\boxed{}` first, without guessing at
    unmarked numbers; a gold text without LaTeX is read as a plain expression.

    Raises:
        ValueError: neither column is in the dataset.
    """
    column = next((name for name in GOLD_COLUMNS if name in columns), None)
    if column is None:
        raise ValueError(f"accuracy needs a dataset column named {' or '.join(GOLD_COLUMNS)}")
    limits = _limits()
    return [
        _score(text_of(completion), str(gold), *limits)
        for completion, gold in zip(completions, columns[column], strict=True)
    ]


def _score(text: str, gold: str, parse_seconds: int | None, verify_seconds: int | None) -> float | None:
    right = parse(gold, parsing_timeout=parse_seconds)
    if not right:
        return None
    given = parse(
        text,
        extraction_config=[
            LatexExtractionConfig(
                normalization_config=NormalizationConfig(units=True),
                boxed_match_priority=0,
                try_extract_without_anchor=False,
            )
        ],
        extraction_mode="first_match",
        parsing_timeout=parse_seconds,
    )
    return float(verify(right, given, timeout_seconds=verify_seconds))


def _limits() -> tuple[int | None, int | None]:
    """math-verify interrupts itself by SIGALRM, which works in a process's main thread only.

    The runner calls reward functions there; elsewhere (a notebook's thread) only the caller's limit holds.
    """
    if threading.current_thread() is threading.main_thread():
        return PARSE_SECONDS, VERIFY_SECONDS
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.ERROR)  # it warns at each call that it has no time-out
    return None, None
