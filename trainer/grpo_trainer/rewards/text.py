"""Completions as reward functions get them, whatever their form."""

from __future__ import annotations

from typing import Any


def text_of(completion: Any) -> str:
    """Return the text of a completion: a string, or a list of chat messages whose contents are joined."""
    if isinstance(completion, str):
        return completion
    return "".join(_content(message["content"]) for message in completion)


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())
