"""Prompts and completions between text and token ids: what training and evaluation must do alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Message = dict[str, Any]
"""A chat message: `role` and `content`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of the dataset, ready for generation."""

    index: int
    """Row in the dataset that was kept (after too long prompts were dropped)."""
    prompt: str | list[Message]
    """As reward functions see it: text, or chat messages (system message included)."""
    prompt_ids: list[int]
    columns: dict[str, Any]
    """The row's columns for the reward functions."""


def as_messages(prompt: str | list[Message], system_prompt: str | None) -> list[Message]:
    """Return a prompt as chat messages: text becomes one user message; the system prompt comes first.

    A system message that the dataset's own messages begin with is kept instead of `system_prompt`.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if system_prompt is not None and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system_prompt})
    return messages


def tokenize(prompts: Sequence[str | list[Message]], tokenizer: Any) -> list[list[int]]:
    """Token ids of prompts, unpadded: messages by the chat template with the assistant's turn opened, text as it is."""
    if not prompts:
        return []
    if isinstance(prompts[0], str):
        ids = tokenizer(list(prompts))["input_ids"]
    else:
        ids = tokenizer.apply_chat_template(list(prompts), add_generation_prompt=True, tokenize=True, return_dict=True)[
            "input_ids"
        ]
    return [list(row) for row in ids]


def left_pad(rows: Sequence[Sequence[int]], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Prompts → (ids, mask), both (B, longest) int64, padding on the left as generation needs it."""
    return _pad(rows, pad_token_id, left=True)


def right_pad(rows: Sequence[Sequence[int]], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Completions → (ids, mask), both (B, longest) int64, padding on the right."""
    return _pad(rows, pad_token_id, left=False)


def _pad(rows: Sequence[Sequence[int]], pad_token_id: int, *, left: bool) -> tuple[Tensor, Tensor]:
    width = max((len(row) for row in rows), default=0)
    ids = torch.full((len(rows), width), pad_token_id, dtype=torch.int64)
    mask = torch.zeros((len(rows), width), dtype=torch.int64)
    for i, row in enumerate(rows):
        span = slice(width - len(row), width) if left else slice(0, len(row))
        ids[i, span] = torch.as_tensor(row, dtype=torch.int64)
        mask[i, span] = 1
    return ids, mask


def pad_token_id(tokenizer: Any) -> int:
    """The tokenizer's padding token, or its end-of-sequence token where it has none.

    Raises:
        ValueError: it has neither.
    """
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise ValueError("the tokenizer has neither a padding token nor an end-of-sequence token")


def eos_token_ids(generation_config: Any, tokenizer: Any) -> list[int]:
    """All token ids that end a completion: the tokenizer's, and every one the model names (TRL 1.16)."""
    named = getattr(generation_config, "eos_token_id", None)
    ids = [tokenizer.eos_token_id, *(named if isinstance(named, list | tuple) else [named])]
    return list(dict.fromkeys(int(token) for token in ids if token is not None))


def cut_after_eos(completions: Tensor, eos_ids: Sequence[int]) -> list[list[int]]:
    """Generated ids (B, C) → one list per row, up to and including the first end-of-sequence token."""
    is_eos = torch.isin(completions, torch.tensor(list(eos_ids), dtype=completions.dtype, device=completions.device))
    after_first = is_eos.int().cumsum(dim=1) - is_eos.int() > 0
    lengths = (~after_first).sum(dim=1).tolist()
    return [row[:length] for row, length in zip(completions.tolist(), lengths, strict=True)]


def is_truncated(completion_ids: Sequence[int], eos_ids: Sequence[int]) -> bool:
    """Whether a completion ran into the length limit instead of ending by itself."""
    return not completion_ids or completion_ids[-1] not in eos_ids


def decode_completions(
    tokenizer: Any, completion_ids: Sequence[Sequence[int]], prompts: Sequence[str | list[Message]]
) -> list[str | list[Message]]:
    """Completions as reward functions get them: text, or one assistant message where the prompt is messages (TRL)."""
    texts = tokenizer.batch_decode([list(ids) for ids in completion_ids], skip_special_tokens=True)
    return [
        text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
        for text, prompt in zip(texts, prompts, strict=True)
    ]
