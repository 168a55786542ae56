"""How others score: one row per completion. Written against transformers alone, with nothing of `grpo_scoring`'s head.

Values are flat, (ΣC,), fp32, in the order of groups and completions, as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from grpo_scoring.groups import Group
from numpy.typing import NDArray

Values = NDArray[np.float32]
Score = Callable[[Sequence[Group]], Values]

FULL_ROWS = 8
"""Rows of one forward with full logits: TRL's default per_device_train_batch_size."""
CHUNK = {"cpu": 128, "cuda": 1024}
"""Positions projected at a time."""


@torch.inference_mode()
def full_logits(model: Any, groups: Sequence[Group]) -> Values:
    """Logits of all positions, then log-softmax row by row, then the completion's tokens.

    What the remote app of TRL's pull request 2763 and simple_GRPO's `get_per_token_logps` do.
    """
    rows = [(group.prompt, completion) for group in groups for completion in group.completions]
    values = []
    for first in range(0, len(rows), FULL_ROWS):
        batch = rows[first : first + FULL_ROWS]
        ids, mask = _pad([np.concatenate(row) for row in batch], model.device)
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        for row, (line, (prompt, completion)) in enumerate(zip(logits, batch, strict=True)):
            logprobs = line[:-1].float().log_softmax(-1)
            own = logprobs.gather(1, ids[row, 1:, None])[:, 0]
            values.append(own[prompt.size - 1 : prompt.size - 1 + completion.size].cpu())
    return np.asarray(torch.cat(values).numpy())


@torch.inference_mode()
def chunked_head(model: Any, groups: Sequence[Group], max_batch_tokens: int) -> Values:
    """Hidden states of all rows, the head on completion positions alone, a few at a time: no full logits.

    The structure of TRL 1.16's fused head where Triton runs (`trl/trainer/utils.py`, `add_fused_lm_head`); on a CPU
    TRL projects every position, so this is the stronger of the two. Stronger than TRL also in that rows are sorted by
    length, and padded on the right, where causal attention needs no mask.
    """
    rows = [(group.prompt, completion) for group in groups for completion in group.completions]
    order = sorted(range(len(rows)), key=lambda index: -sum(part.size for part in rows[index]))
    found: dict[int, torch.Tensor] = {}
    while order:
        longest = sum(part.size for part in rows[order[0]])
        count = max(1, max_batch_tokens // longest)
        batch, order = order[:count], order[count:]
        ids, _ = _pad([np.concatenate(rows[index]) for index in batch], model.device)
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        wanted = torch.zeros_like(ids, dtype=torch.bool)
        for line, index in enumerate(batch):
            prompt, completion = rows[index]
            wanted[line, prompt.size : prompt.size + completion.size] = True
        states, targets = hidden[:, :-1][wanted[:, 1:]], ids[wanted]
        parts = []
        for own, ids_part in zip(states.split(CHUNK[ids.device.type]), targets.split(CHUNK[ids.device.type])):  # noqa: B905
            logits = model.lm_head(own).float()
            parts.append(logits.gather(1, ids_part[:, None])[:, 0] - logits.logsumexp(-1))
        sizes = [rows[index][1].size for index in batch]
        found |= dict(zip(batch, torch.cat(parts).cpu().split(sizes), strict=True))
    return np.asarray(torch.cat([found[index] for index in range(len(rows))]).numpy())


def _pad(rows: list[NDArray[np.int32]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask (rows, longest), padded on the right."""
    ids = np.zeros((len(rows), max(row.size for row in rows)), dtype=np.int64)
    mask = np.zeros_like(ids)
    for line, row in enumerate(rows):
        ids[line, : row.size], mask[line, : row.size] = row, 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
