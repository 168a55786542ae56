"""The process group, and decisions that all ranks take alike.

A rank that fails alone and leaves the others inside a collective makes them wait for a time-out. So whatever a rank
does alone (read data, call rewards, ask the reference) ends in `Communicator.agree`, where all
learn of a fault at once and all raise it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from torch import Tensor

from grpo_trainer.faults import CRASH, AgreedFault, Fault, cause
from grpo_trainer.ranks import Ranks
from grpo_trainer.rendezvous import meet
from grpo_trainer.rewards.errors import RewardError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Communicator:
    """All ranks of the trainer. Small control messages go over a gloo group of their own, on the CPU."""

    def __init__(self, ranks: Ranks, device: torch.device, control: dist.ProcessGroup) -> None:
        self.rank = ranks.rank
        self.world_size = ranks.world_size
        self.ranks = ranks
        self.device = device
        self._control = control

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0."""
        return self.ranks.is_main

    def agree(self, local: Callable[[], T]) -> T:
        """Run what this rank does alone; return its value if no rank failed.

        A collective: every rank must call it at the same place.

        Raises:
            AgreedFault: on all ranks alike, with the fault that explains the others'.
        """
        value: T | None = None
        fault: Fault | None = None
        error: Exception | None = None
        try:
            value = local()
        except Exception as raised:
            error, fault = raised, Fault.of(raised, self.rank)
            logger.error("%s", fault.message, exc_info=raised if fault.exit_code == CRASH else None)
            if isinstance(raised, RewardError) and raised.traceback:
                logger.error("the reward function's own %s", raised.traceback.rstrip())
        if self.any(fault is not None):
            faults = [one for one in self.gather(fault) if one is not None]
            raise AgreedFault(cause(faults)) from error
        return cast("T", value)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank. A collective."""
        return bool(self.max(float(flag)))

    def max(self, value: float) -> float:
        """Largest value over the ranks. A collective."""
        return float(self._reduce(torch.tensor([value], dtype=torch.float64), dist.ReduceOp.MAX))

    def sum(self, values: Tensor) -> Tensor:
        """Sum over the ranks of a tensor on any device; the result is on the CPU. A collective."""
        return self._reduce(values.detach().to("cpu", copy=True), dist.ReduceOp.SUM)

    def concatenate(self, rows: Tensor) -> Tensor:
        """Rows of all ranks below each other, in the ranks' order, on the CPU; all have as many. A collective."""
        local = rows.detach().cpu().contiguous()
        parts = [torch.empty_like(local) for _ in range(self.world_size)]
        dist.all_gather(parts, local, group=self._control)
        return torch.cat(parts)

    def gather(self, value: T) -> list[T]:
        """Python values of all ranks, in the ranks' order (pickled: between our own processes only). A collective."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def from_main(self, value: T) -> T:
        """Rank 0's value, on all ranks. A collective."""
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0, group=self._control)
        return cast("T", values[0])

    def barrier(self) -> None:
        """Wait for all ranks. A collective."""
        dist.barrier(group=self._control)

    def close(self) -> None:
        """Leave together: a rank that just ends can make its peers abort while they still hold connections."""
        self.barrier()
        dist.destroy_process_group()

    def _reduce(self, values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        dist.all_reduce(values, operation, group=self._control)
        return values


def connect(
    ranks: Ranks, *, rendezvous_timeout_seconds: float, collective_timeout_seconds: float, alone_seconds: float
) -> Communicator:
    """Join the process group: nccl where there is a GPU, else gloo.

    Args:
        ranks: who this process is.
        rendezvous_timeout_seconds: how long the ranks wait for each other.
        collective_timeout_seconds: after so long in a collective a peer counts as lost.
        alone_seconds: how long a rank may rightly be busy alone (rewards, the reference) while others wait for it
            in `Communicator.agree`.

    Raises:
        PeerLost: not all ranks came in time.
    """
    # DeepSpeed would compile its shared-memory op at this point, which needs a compiler and can hang on a lock file;
    # gloo does the same work.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    timeout = timedelta(seconds=collective_timeout_seconds)
    store = meet(ranks, rendezvous_timeout_seconds)
    if torch.cuda.is_available():
        backend, device = "nccl", torch.device("cuda", ranks.local_rank)
        torch.cuda.set_device(device)
    else:
        backend, device = "gloo", torch.device("cpu")
    dist.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.world_size, timeout=timeout)
    deepspeed.init_distributed(dist_backend=backend, timeout=timeout, verbose=False)
    control = dist.new_group(backend="gloo", timeout=timeout + timedelta(seconds=alone_seconds))
    assert control is not None
    logger.info(
        "rank %d of %d met the others at %s:%d (%s)",
        ranks.rank, ranks.world_size, ranks.master_addr, ranks.master_port, backend,
    )  # fmt: skip
    return Communicator(ranks, device, control)
