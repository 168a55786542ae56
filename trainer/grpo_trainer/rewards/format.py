"""The built-in reward `format`."""

from __future__ import annotations

import re
from typing import Any

from grpo_trainer.rewards.text import text_of

_FORMAT = re.compile(r"\s*<think>(?P<think>.*?)</think>\s*<answer>(?P<answer>.*?)</answer>\s*", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def think_answer_format(completions: list[Any], **_: Any) -> list[float | None]:
    """1.0 where a completion is `<think>…</think><answer>…</answer>` and nothing else, else 0.0.

    White space around the tags is allowed; each tag must come exactly once and the answer must not be empty
    (the format of DeepSeek-R1, arXiv:2501.12948, section 2.2).
    """
    return [1.0 if _is_formatted(text_of(completion)) else 0.0 for completion in completions]


def _is_formatted(text: str) -> bool:
    match = _FORMAT.fullmatch(text)
    return match is not None and all(text.count(tag) == 1 for tag in _TAGS) and bool(match["answer"].strip())
