"""The processes of one model, and how they speak to each other.

Three process groups. ``torch.distributed``'s default one belongs to the model's forwards: NCCL between GPUs, gloo
between CPUs. The two others are gloo and carry bytes: what rank 0 wants done, and how staging went. A rank may wait
in them for days, so they have no time-out worth the name; that a peer has died is seen by whoever started the ranks,
and by the closed connection.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from grpo_refserver.settings import ConfigurationError
from grpo_refserver.tensor_parallel.calls import Call, decode, encode
from grpo_refserver.tensor_parallel.ranks import Rank

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""Of a collective of a forward, and of the start: after it a rank that takes no part counts as lost."""
PATIENCE = timedelta(days=3650)


class RankLostError(Exception):
    """Another rank does not answer any more."""


@dataclass
class RankGroup:
    """This process among those of its model.

    Attributes:
        rank: which one it is.
        device: of this rank's part, as ``cuda:1``.
    """

    rank: Rank
    device: str
    _calls: Any
    _outcomes: Any

    def __post_init__(self) -> None:
        self._speaking = threading.Lock()

    @classmethod
    def join(cls, rank: Rank, device: str, timeout: timedelta = COLLECTIVE_TIMEOUT) -> RankGroup:
        """Waits for the other ranks. Raises ConfigurationError where there is no device for this one.

        Args:
            rank: which process this is.
            device: ``--device``: auto, cpu or cuda.
            timeout: of collectives in the default group.
        """
        device = pick_device(device, rank)
        on_gpu = device.startswith("cuda")
        if on_gpu:
            torch.cuda.set_device(device)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            init_method="env://",  # torchrun's agent may hold the store: only this way asks for it
            rank=rank.rank,
            world_size=rank.size,
            timeout=timeout,
        )
        return cls(
            rank,
            device,
            dist.new_group(backend="gloo", timeout=PATIENCE),
            dist.new_group(backend="gloo", timeout=PATIENCE),
        )

    def send(self, call: Call) -> None:
        """Tells the other ranks (on rank 0; by any thread). Raises RankLostError."""
        data = torch.frombuffer(bytearray(encode(call)), dtype=torch.uint8)
        with self._speaking, _lost():
            dist.broadcast(torch.tensor([data.numel()]), src=0, group=self._calls)
            dist.broadcast(data, src=0, group=self._calls)

    def receive(self) -> Call:
        """Waits for what rank 0 wants (on the others), however long. Raises RankLostError."""
        with _lost():
            size = torch.empty(1, dtype=torch.int64)
            dist.broadcast(size, src=0, group=self._calls)
            data = torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(data, src=0, group=self._calls)
        return decode(data.numpy().tobytes())

    def gather(self, text: str) -> list[str]:
        """Every rank's text, on every rank, in the order of ranks. One thread at a time. Raises RankLostError."""
        data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        with _lost():
            sizes = [torch.empty(1, dtype=torch.int64) for _ in range(self.rank.size)]
            dist.all_gather(sizes, torch.tensor([data.numel()]), group=self._outcomes)
            longest = max(int(size) for size in sizes)
            padded = torch.zeros(longest, dtype=torch.uint8)
            padded[: data.numel()] = data
            texts = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
            dist.all_gather(texts, padded, group=self._outcomes)
        return [text[: int(size)].numpy().tobytes().decode() for text, size in zip(texts, sizes, strict=True)]


def pick_device(name: str, rank: Rank) -> str:
    """The rank's own GPU, or the CPU. Raises ConfigurationError where there is none for it."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu":
        if gpus:
            raise ConfigurationError(
                "--device cpu with --tensor-parallel-size: a model is spread over the GPUs where there are any: "
                "start with CUDA_VISIBLE_DEVICES= to hide them"
            )
        return "cpu"
    if name not in ("auto", "cuda"):
        raise ConfigurationError(
            f"--device {name} with --tensor-parallel-size: rank n takes GPU n, use auto and CUDA_VISIBLE_DEVICES"
        )
    if name == "auto" and not gpus:
        return "cpu"
    if gpus < rank.size:
        raise ConfigurationError(
            f"--tensor-parallel-size {rank.size} needs as many GPUs, and torch sees {gpus} here: set the limit "
            "nvidia.com/gpu of reference.resources to it, or lower it (spec.reference.tensorParallelSize)"
        )
    return f"cuda:{rank.rank}"


@contextmanager
def _lost() -> Iterator[None]:
    """Turns what a collective raises when a peer has gone into RankLostError."""
    try:
        yield
    except RuntimeError as error:
        raise RankLostError(f"another rank has gone: {error}") from error
