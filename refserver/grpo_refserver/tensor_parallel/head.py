"""The head of a model that is spread over devices: each knows the logits of its part of the vocabulary."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from grpo_scoring.head import DEFAULT_CHUNK_SIZE, HeadOutput, LogitTransform, teach
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from torch.nn.functional import linear


def spread_head(model: Any) -> bool:
    """Lets the head score without gathering logits; returns whether it can.

    transformers' plan gathers the logits of all devices for every position. Here each device reduces its own part of
    the vocabulary to two numbers per position, the log-sum-exp and the logit of the target (or minus infinity where
    it lies elsewhere), and these are gathered, once per call. It is left as it is where it is not a linear layer that
    is spread over its output.
    """
    head = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    if type(head) is not nn.Linear or not isinstance(weight, DTensor) or weight.placements != (Shard(0),):
        return False
    mesh = weight.device_mesh
    group, size = mesh.get_group(), mesh.size()
    first = mesh.get_local_rank() * -(-weight.shape[0] // size)  # as DTensor cuts: the last part may be shorter
    transform = LogitTransform.of(model.config)

    def score(
        head: nn.Linear,
        hidden: Tensor,
        targets: Tensor,
        *,
        temperature: float = 1.0,
        chunk_size: int = DEFAULT_CHUNK_SIZE,
        recompute: bool = True,
        entropy: bool = False,
    ) -> HeadOutput:
        if entropy or torch.is_grad_enabled():
            raise ValueError("a head that is spread over devices gives neither entropy nor gradients")
        part, bias = _local(head.weight), _local(head.bias)
        chunks = []
        for states, ids in zip(torch.split(hidden, chunk_size), torch.split(targets, chunk_size), strict=True):
            logits = transform(linear(states, part, bias).float())
            if temperature != 1.0:
                logits = logits / temperature
            place = ids - first
            here = (place >= 0) & (place < part.shape[0])
            own = logits.gather(-1, place.clamp(0, part.shape[0] - 1)[:, None])[:, 0]
            chunks.append(torch.stack([logits.logsumexp(-1), own.where(here, -torch.inf)]))
        parts = combine(torch.cat(chunks, dim=1), group, size)
        return HeadOutput(parts[:, 1].amax(0) - parts[:, 0].logsumexp(0), None)

    teach(head, score)
    return True


def combine(part: Tensor, group: Any, size: int) -> Tensor:
    """Every device's part, (size, *part.shape)."""
    parts = part.new_empty(size * part.shape[0], *part.shape[1:])
    dist.all_gather_single(parts, part.contiguous(), group=group)
    return parts.view(size, *part.shape)


def _local(parameter: Tensor | None) -> Any:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
