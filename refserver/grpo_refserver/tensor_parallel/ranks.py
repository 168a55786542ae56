"""Which of the processes of one model this is: torchrun's environment."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_refserver.settings import ConfigurationError

RANK = "RANK"
LOCAL_RANK = "LOCAL_RANK"
WORLD_SIZE = "WORLD_SIZE"
LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE"
MASTER_ADDR = "MASTER_ADDR"
MASTER_PORT = "MASTER_PORT"


@dataclass(frozen=True)
class Rank:
    """One process of a model that is spread over ``size`` devices of one machine.

    Attributes:
        rank: from 0, which serves; also the number of the GPU.
        size: processes.
        address: of rank 0.
        port: where rank 0 awaits the others.
    """

    rank: int
    size: int
    address: str
    port: int

    @classmethod
    def of(cls, environ: Mapping[str, str], size: int) -> Rank | None:
        """What a launcher has set; None where no launcher did.

        Raises:
            ConfigurationError: the launcher did not start ``size`` processes on this machine.
        """
        names = (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)
        if not all(environ.get(name) for name in names):
            return None
        try:
            rank, world, port = (int(environ[name]) for name in (RANK, WORLD_SIZE, MASTER_PORT))
            local_world = int(environ.get(LOCAL_WORLD_SIZE) or world)
        except ValueError as error:
            raise ConfigurationError(f"{RANK}, {WORLD_SIZE} and {MASTER_PORT} must be numbers: {error}") from None
        if (world, local_world) != (size, size):
            raise ConfigurationError(
                f"--tensor-parallel-size {size} needs as many processes on one machine, and the launcher started "
                f"{WORLD_SIZE}={world}, {local_world} of them here: use torchrun --nproc-per-node {size}, or none"
            )
        return cls(rank, world, environ[MASTER_ADDR], port)

    @classmethod
    def all(cls, size: int) -> list[Rank]:
        """The ranks of a model on this machine, which meet at a port that is free now."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        return [cls(rank, size, "127.0.0.1", port) for rank in range(size)]

    def to_environ(self) -> dict[str, str]:
        """What torchrun would set for this process."""
        return {
            RANK: str(self.rank),
            LOCAL_RANK: str(self.rank),
            WORLD_SIZE: str(self.size),
            LOCAL_WORLD_SIZE: str(self.size),
            MASTER_ADDR: self.address,
            MASTER_PORT: str(self.port),
        }
