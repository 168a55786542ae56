"""Padding, choosing and cutting the rows of a generation batch."""

from __future__ import annotations

import torch
from grpo_trainer.generation_batch import GenerationBatch, assemble, scatter_logps

PROMPTS = [[5, 6, 7], [8], [8], [9, 9]]
COMPLETIONS = [[1, 2], [3, 4, 5], [2], [6, 6, 6]]
EOS, PAD = 2, 0


def batch(mask_truncated: bool = False) -> GenerationBatch:
    return assemble(
        PROMPTS,
        COMPLETIONS,
        torch.arange(4.0),
        pad_token_id=PAD,
        eos_token_ids=[EOS],
        mask_truncated=mask_truncated,
    )


def test_prompts_are_padded_left_and_completions_right() -> None:
    made = batch()
    assert made.completion_length == 3
    assert made.input_ids.tolist() == [
        [5, 6, 7, 1, 2, 0],
        [0, 0, 8, 3, 4, 5],
        [0, 0, 8, 2, 0, 0],
        [0, 9, 9, 6, 6, 6],
    ]
    assert made.attention_mask.tolist()[0] == [1, 1, 1, 1, 1, 0]
    assert made.mask.tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]]


def test_truncated_completions_can_be_left_out() -> None:
    made = batch(mask_truncated=True)
    assert made.mask.sum(1).tolist() == [2, 0, 1, 0]
    assert made.attention_mask[:, :3].sum() == batch().attention_mask[:, :3].sum(), "prompts stay"


def test_rows_and_micro_batches_hold_what_belongs_together() -> None:
    made = batch()
    made = GenerationBatch(
        made.input_ids, made.attention_mask, 3, made.advantages, old_logps=made.mask * 1.0, ref_logps=made.mask * 2.0
    )
    parts = list(made.rows(torch.tensor([3, 0, 2, 1])).split(2))
    assert [part.advantages.tolist() for part in parts] == [[3, 0], [2, 1]]
    for part in parts:
        assert part.old_logps is not None
        assert part.ref_logps is not None
        assert torch.equal(part.old_logps, part.mask * 1.0)
        assert torch.equal(part.ref_logps, part.mask * 2.0)


def test_logps_are_put_in_their_places() -> None:
    made = batch(mask_truncated=True)
    placed = scatter_logps([[-1.0, -2.0], [-3.0, -4.0, -5.0], [-6.0], [-7.0, -8.0, -9.0]], made)
    assert placed.tolist() == [[-1, -2, 0], [0, 0, 0], [-6, 0, 0], [0, 0, 0]]
