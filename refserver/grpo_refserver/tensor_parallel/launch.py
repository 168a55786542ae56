"""Starts the processes of one model, and ends them all when one of them ends.

What torchrun does, but with the exit code and the reason of the process that ended first, SIGTERM for rank 0 alone
(it drains and then tells the others), and no torch in this process.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_api.env import GRPO_TERMINATION_LOG
from grpo_api.exit_codes import ExitCode, is_permanent
from grpo_api.progress import Termination
from grpo_api.rank_processes import RankEnd, RankProcesses
from grpo_api.termination import read_termination, write_termination
from grpo_api.usable_cpus import usable_cpus

from grpo_refserver.settings import Settings
from grpo_refserver.tensor_parallel.ranks import Rank

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0
"""After the first end: how long the other ranks have to end by themselves. The model is of no use without a part."""
_DRAIN_MARGIN_SECONDS = 10.0
"""What a drain may take beyond the grace period: the forward that runs, and the server's own end."""


def make_processes(settle_seconds: float = SETTLE_SECONDS) -> RankProcesses:
    """No processes yet; the end of one will end the others, but for ranks that end well before rank 0 in a drain."""
    processes = RankProcesses(
        settle_seconds=settle_seconds,
        ends_all=lambda end: not (end.rank != 0 and end.code == ExitCode.SUCCEEDED and processes.signalled),
    )
    return processes


def cause(ends: Sequence[RankEnd], *, signalled: bool) -> RankEnd:
    """Of the ends, in the order they were seen, the one that explains the others.

    If rank 0 ended well and no other had failed before, all is well: it drained, or was told to end before it had
    begun. Else settings that cannot work explain a kill elsewhere, a kill an exception, and that a rank that lost its
    peers (75); among equals the first. A rank that ended well explains others only without a signal, when it should
    have gone on.
    """
    for end in ends:
        if end.code != ExitCode.SUCCEEDED:
            break
        if end.rank == 0:
            return end
    return min(ends, key=lambda end: _weight(end, signalled))


def _weight(end: RankEnd, signalled: bool) -> int:
    if end.by_us:
        return 5
    if end.code == ExitCode.SUCCEEDED:
        return 6 if signalled else 4
    if is_permanent(end.code):
        return 0
    if end.code < 0:
        return 1
    return 3 if end.code == ExitCode.RETRY else 2


def explain(end: RankEnd, told: Termination | None) -> Termination:
    """The reason that the pod ends with: what the rank told, or what its end says where it told nothing."""
    if told is not None and told.exit_code == end.exit_code:
        return told.model_copy(update={"rank": end.rank, "message": f"rank {end.rank}: {told.message}"})
    return Termination(
        reason="Crashed", message=f"rank {end.rank} {end.describe()}", rank=end.rank, exit_code=end.exit_code or 1
    )


def launch(arguments: Sequence[str], settings: Settings) -> int:
    """Runs ``grpo-refserver`` with these arguments as ``tensor_parallel_size`` ranks; returns the exit code."""
    ranks = Rank.all(settings.tensor_parallel_size)
    log.info("starting ranks", extra={"ranks": len(ranks), "meeting_port": ranks[0].port})
    path = os.environ.get(GRPO_TERMINATION_LOG)
    with tempfile.TemporaryDirectory(prefix="grpo-refserver-") as scratch:
        reasons = {rank.rank: Path(scratch) / f"rank-{rank.rank}.json" for rank in ranks}
        processes = make_processes()
        processes.start(
            [sys.executable, "-m", "grpo_refserver.cli", *arguments],
            {rank.rank: environment(os.environ, rank, reasons[rank.rank], settings.device) for rank in ranks},
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            # Rank 0's alone: the first drains it, the second ends it.
            signal.signal(number, lambda received, _: processes.signal(received, [0]))
        ends = processes.wait(settings.grace_period_seconds + _DRAIN_MARGIN_SECONDS)
        end = cause(ends, signalled=processes.signalled)
        told = read_termination(reasons[end.rank])
    if end.exit_code == ExitCode.SUCCEEDED and end.rank == 0:
        return ExitCode.SUCCEEDED
    termination = explain(end, told)
    log.error("ended: %s", termination.message, extra={"exit_code": termination.exit_code})
    write_termination(termination, Path(path) if path else None)
    return int(termination.exit_code or 1)


def environment(own: Mapping[str, str], rank: Rank, termination_log: Path, device: str) -> dict[str, str]:
    """The environment of a rank: torchrun's variables, a reason file of its own, its share of the CPUs."""
    result = {
        # All ranks are on this machine: nothing they say to each other leaves it.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": str(max(1, usable_cpus() // rank.size)),
        **own,
        **rank.to_environ(),
        GRPO_TERMINATION_LOG: str(termination_log),
    }
    if device == "cpu":
        result["CUDA_VISIBLE_DEVICES"] = ""  # transformers spreads a model over the GPUs it sees
    return result
