"""A rank's part of a generation batch: what is trained on until the next generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from grpo_trainer.prompts import is_truncated, left_pad, right_pad


@dataclass(frozen=True, slots=True)
class GenerationBatch:
    """B completions with their prompts; P and C are the longest prompt and completion on this rank."""

    input_ids: Tensor
    """(B, P + C) left-padded prompts next to right-padded completions."""
    attention_mask: Tensor
    """(B, P + C), 1 on real tokens that count."""
    completion_length: int
    """C."""
    advantages: Tensor
    """(B,)."""
    old_logps: Tensor | None = None
    """(B, C) under the policy that sampled; None where they equal the policy's own at the time of use."""
    ref_logps: Tensor | None = None
    """(B, C) under the reference; None with beta 0."""

    @property
    def mask(self) -> Tensor:
        """(B, C), 1 on completion tokens that count."""
        return self.attention_mask[:, -self.completion_length :]

    def __len__(self) -> int:
        return self.input_ids.size(0)

    def rows(self, index: Tensor | slice) -> GenerationBatch:
        """Return some of the rows, in the index's order."""
        return replace(
            self,
            input_ids=self.input_ids[index],
            attention_mask=self.attention_mask[index],
            advantages=self.advantages[index],
            old_logps=None if self.old_logps is None else self.old_logps[index],
            ref_logps=None if self.ref_logps is None else self.ref_logps[index],
        )

    def split(self, count: int) -> Iterator[GenerationBatch]:
        """Cut into `count` micro-batches of neighbouring rows."""
        size = len(self) // count
        for start in range(0, count * size, size):
            yield self.rows(slice(start, start + size))


def assemble(
    prompts: list[list[int]],
    completions: list[list[int]],
    advantages: Tensor,
    *,
    pad_token_id: int,
    eos_token_ids: list[int],
    mask_truncated: bool,
) -> GenerationBatch:
    """Pad prompts and completions into one batch.

    With `mask_truncated` a completion that ran into the length limit counts nowhere, not even as context (TRL 1.16).
    """
    prompt_ids, prompt_mask = left_pad(prompts, pad_token_id)
    completion_ids, completion_mask = right_pad(completions, pad_token_id)
    if mask_truncated:
        # TRL also lets a completion pass that ends in padding.
        ends = [*eos_token_ids, pad_token_id]
        kept = torch.tensor([not is_truncated(ids, ends) for ids in completions])
        completion_mask = completion_mask * kept[:, None]
    return GenerationBatch(
        input_ids=torch.cat([prompt_ids, completion_ids], dim=1),
        attention_mask=torch.cat([prompt_mask, completion_mask], dim=1),
        completion_length=completion_ids.size(1),
        advantages=advantages,
    )


def scatter_logps(values: Sequence[Any], like: GenerationBatch) -> Tensor:
    """One sequence of log-probabilities per row → (B, C) float32, 0 where the batch's mask is 0."""
    logps = torch.zeros(len(like), like.completion_length)
    for row, sequence in zip(logps, values, strict=True):
        row[: len(sequence)] = torch.as_tensor(sequence)
    return logps * like.mask
