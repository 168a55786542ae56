"""A fault: what went wrong on a rank, in a form that can be sent to the others and reported."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch.distributed as dist
from grpo_api.exit_codes import ExitCode, is_permanent

from grpo_trainer.errors import PermanentError
from grpo_trainer.interruptions import Interruption, PeerLost

CRASH = 1
"""Exit code of an error that nobody foresaw."""

_LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo", "NCCL", "TCPStore")
"""What torch says in a RuntimeError where a collective failed because of another process."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong, where, and the exit code that follows."""

    rank: int
    exit_code: int
    reason: str
    message: str

    @classmethod
    def of(cls, error: BaseException, rank: int) -> Fault:
        """Tell an error's meaning: permanent, curable by another attempt, or a crash."""
        if isinstance(error, AgreedFault):
            return error.fault
        if isinstance(error, PermanentError | Interruption):
            return cls(rank, error.exit_code, error.reason, str(error))
        if is_peer_loss(error):
            text = re.sub(r"^\[\S+\] ", "", " ".join(str(error).split()))  # without the place in torch's source
            return cls(
                rank, ExitCode.RETRY, PeerLost.reason, f"a peer of rank {rank} is gone or does not answer: {text}"
            )
        return cls(rank, CRASH, "Crashed", f"{type(error).__name__}: {error}")


class AgreedFault(Exception):  # noqa: N818  (the fault is the other rank's, this only brings the news)
    """Raised on every rank, with the same fault, when one rank had it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"rank {fault.rank}: {fault.message}")
        self.fault = fault


def is_peer_loss(error: BaseException) -> bool:
    """Whether a collective failed because another process is gone or silent, not because of this one."""
    if isinstance(error, PeerLost | dist.DistError):
        return True
    return type(error) is RuntimeError and any(sign in str(error) for sign in _LOST_PEER)


def weight(exit_code: int) -> int:
    """Order of causes: permanent first, then crashes, then lost peers and the like, success last."""
    if exit_code == ExitCode.SUCCEEDED:
        return 3
    if is_permanent(exit_code):
        return 0
    return 2 if exit_code == ExitCode.RETRY else 1


def cause(faults: Iterable[Fault]) -> Fault:
    """Of the faults of one moment, return the one that explains the others; the lowest rank's among equals."""
    return min(faults, key=lambda fault: (weight(fault.exit_code), fault.rank))
