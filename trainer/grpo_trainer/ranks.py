"""Which rank a process is: torchrun's environment, read once."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_api import env

from grpo_trainer.errors import ConfigurationError

RANK = "RANK"
LOCAL_RANK = "LOCAL_RANK"
WORLD_SIZE = "WORLD_SIZE"
LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE"
MASTER_ADDR = "MASTER_ADDR"
MASTER_PORT = "MASTER_PORT"


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among all processes of the trainer."""

    rank: int = 0
    """Global rank, from 0."""
    world_size: int = 1
    local_rank: int = 0
    """Rank among the processes of this pod: which GPU it uses."""
    local_world_size: int = 1
    """Processes of this pod, which share its memory."""
    master_addr: str = "127.0.0.1"
    """Host name or address of rank 0."""
    master_port: int = env.DEFAULT_MASTER_PORT

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes what is written once."""
        return self.rank == 0

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Ranks:
        """Read torchrun's variables; none set means one process.

        Raises:
            ConfigurationError: a variable is not a number, or they contradict each other.
        """
        ranks = cls(
            rank=_number(environ, RANK, 0),
            world_size=_number(environ, WORLD_SIZE, 1),
            local_rank=_number(environ, LOCAL_RANK, 0),
            local_world_size=_number(environ, LOCAL_WORLD_SIZE, 1),
            master_addr=environ.get(MASTER_ADDR, "127.0.0.1"),
            master_port=_number(environ, MASTER_PORT, env.DEFAULT_MASTER_PORT),
        )
        if not 0 <= ranks.rank < ranks.world_size:
            raise ConfigurationError(RANK, f"{ranks.rank} is not below {WORLD_SIZE} {ranks.world_size}")
        return ranks

    def to_environ(self) -> dict[str, str]:
        """Return the variables for this rank's process."""
        return {
            RANK: str(self.rank),
            WORLD_SIZE: str(self.world_size),
            LOCAL_RANK: str(self.local_rank),
            LOCAL_WORLD_SIZE: str(self.local_world_size),
            MASTER_ADDR: self.master_addr,
            MASTER_PORT: str(self.master_port),
        }


def alone_if_unset(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to those of a process that no launcher started: one rank, on a free port.

    Raises:
        ConfigurationError: only some of what torchrun sets is there; the missing ones are named.
    """
    needed = (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)
    missing = [name for name in needed if not environ.get(name)]
    if not missing:
        return {}
    started = [name for name in environ if name in needed or name.startswith("PET_")]
    if started:
        raise ConfigurationError(
            ", ".join(missing),
            f"not set, though {', '.join(sorted(started))} is: start the ranks with torchrun or grpo-trainer",
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Ranks(master_port=int(probe.getsockname()[1])).to_environ()


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(environ.get(name, default))
    except ValueError:
        raise ConfigurationError(name, f"{environ[name]!r} is not a whole number") from None
