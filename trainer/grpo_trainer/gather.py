"""All ZeRO-3 shards gathered for a while, and whether the memory allows it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deepspeed
import psutil
import torch
from torch import nn

from grpo_trainer.distributed import Communicator
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.policy import Policy

logger = logging.getLogger(__name__)

SAFETY = 1.1
"""What is wanted free, over the estimate: allocators round up and fragment."""


@contextlib.contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Hold every parameter whole on this rank, and run forwards as if DeepSpeed were not there. A collective.

    DeepSpeed's forward hooks are taken off inside: left in place, the first forward would give the weights back and
    the rest would fetch them layer by layer; and one of them is itself a collective, which hangs where ranks generate
    for different numbers of steps. They are the same hooks again afterwards, whatever happens inside, so DeepSpeed's
    trace of the modules stays valid.
    """
    with deepspeed.zero.GatheredParameters(list(module.parameters())), _without_hooks(module):
        yield


@contextlib.contextmanager
def _without_hooks(module: nn.Module) -> Iterator[None]:
    tables = [table for part in module.modules() for table in (part._forward_pre_hooks, part._forward_hooks)]
    saved = [dict(table) for table in tables]
    for table in tables:
        table.clear()
    try:
        yield
    finally:
        for table, hooks in zip(tables, saved, strict=True):
            table.clear()
            table.update(hooks)


@dataclass(frozen=True, slots=True)
class GatherEstimate:
    """Bytes on this rank."""

    weights: int
    """What a gather adds: the whole model less this rank's shard."""
    cache: int
    """Key-value cache of a generation batch, needed either way."""
    free: int

    @property
    def fits(self) -> bool:
        """Whether a gather can work here."""
        return SAFETY * (self.weights + self.cache) <= self.free

    def __str__(self) -> str:
        return (
            f"a gather adds {_gib(self.weights)} GiB of weights, the key-value cache {_gib(self.cache)} GiB; "
            f"{_gib(self.free)} GiB are free"
        )


def estimate(policy: Policy, rows: int, tokens: int, local_world_size: int) -> GatherEstimate:
    """Estimate a gather on this rank.

    Args:
        policy: with its engine made, so that what is free is really free.
        rows: completions this rank generates at a time.
        tokens: longest prompt and completion together.
        local_world_size: ranks that share this pod's memory on a CPU.
    """
    weights = 0
    for parameter in policy.module.parameters():
        shard = getattr(parameter, "ds_tensor", parameter)
        weights += (getattr(parameter, "ds_numel", parameter.numel()) - shard.numel()) * parameter.element_size()
    cache = rows * tokens * _cache_bytes_per_token(policy.module.config)
    if policy.device.type == "cuda":
        on_device, _ = torch.cuda.mem_get_info(policy.device)
        reserved = torch.cuda.memory_reserved(policy.device) - torch.cuda.memory_allocated(policy.device)
        return GatherEstimate(weights, cache, on_device + reserved)
    return GatherEstimate(weights, cache, free_host_memory() // local_world_size)


def choose_gather(wanted: bool | None, policy: Policy, rows: int, tokens: int, communicator: Communicator) -> bool:
    """Decide, alike on all ranks, whether to gather for generation. A collective.

    Raises:
        AgreedFault: a gather is asked for and cannot fit on some rank.
    """
    if not policy.is_sharded:
        return False
    if wanted is False:
        _tell_layered(communicator)
        return False
    mine = estimate(policy, rows, tokens, communicator.ranks.local_world_size)
    logger.info("rank %d: %s", communicator.rank, mine)

    def check() -> None:
        if wanted and not mine.fits:
            raise ConfigurationError(
                "generation.ds3GatherForGeneration",
                f"true cannot work: {mine} on rank {communicator.rank}. Set it to false (slower, layer by layer), "
                "leave it out, use more ranks, or lower optimization.perDeviceTrainBatchSize or "
                "generation.stepsPerGeneration",
            )

    communicator.agree(check)
    choice = not communicator.any(not mine.fits)
    if not choice:
        _tell_layered(communicator)
    if choice and communicator.is_main:
        logger.info("generation gathers the whole model once per generation batch")
    return choice


def _tell_layered(communicator: Communicator) -> None:
    if communicator.is_main:
        logger.info(
            "generation gathers layer by layer: every token moves the whole model over the network, so a batch may "
            "take several times as long as with generation.ds3GatherForGeneration true"
        )


def free_host_memory() -> int:
    """Bytes this container may still take: below its cgroup's limit, and of the machine."""
    free = int(psutil.virtual_memory().available)
    for limit, usage, statistics in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        root = Path("/sys/fs/cgroup")
        try:
            bound = int((root / limit).read_text())  # "max" where there is none
            used = int((root / usage).read_text())
            lines = dict(line.split() for line in (root / statistics).read_text().splitlines())
        except (OSError, ValueError):
            continue
        free = min(free, bound - used + int(lines.get("inactive_file", 0)))
    return max(0, free)


def _cache_bytes_per_token(config: Any) -> int:
    """Keys and values of one token over all layers."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    size = (getattr(config, "dtype", None) or torch.float32).itemsize
    return int(2 * text.num_hidden_layers * heads * head_size * size)


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}"
