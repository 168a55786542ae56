"""`grpo-trainer`, what a trainer pod runs: it starts the pod's ranks and ends with the failing rank's own exit code.

torchrun's launcher would turn every exit code into 1, and the code says whether another attempt could help. It reads
torchrun's variables (PET_*). Arguments are passed on to the ranks, which also run under plain torchrun.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from grpo_api import env
from grpo_api.exit_codes import ExitCode
from grpo_api.layout import LOGS
from grpo_api.progress import Termination
from grpo_api.rank_processes import RankEnd
from grpo_api.termination import read_termination, write_termination
from grpo_api.usable_cpus import usable_cpus

from grpo_trainer import flags
from grpo_trainer.config import check_world_size, read_job
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.ranks import Ranks
from grpo_trainer.supervisor import Supervisor, cause

logger = logging.getLogger(__name__)

DEFAULT_GRACE_SECONDS = 120.0
_GRACE_MARGIN_SECONDS = 5.0
"""Kept of terminationGracePeriodSeconds, to tell the reason before the kubelet kills the launcher."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ranks of this pod; return the exit code of the one that explains the end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s launcher: %(message)s", stream=sys.stderr)
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(arguments):
        flags.make_parser().print_help()
        return 0
    log = os.environ.get(env.GRPO_TERMINATION_LOG)
    termination_log = Path(log) if log else None
    try:
        ranks, grace = plan_ranks(os.environ)
        log_file = _open_log(os.environ, ranks[0])
    except ConfigurationError as error:
        logger.error("%s", error)
        write_termination(
            Termination(reason=error.reason, message=str(error), exit_code=error.exit_code), termination_log
        )
        return int(error.exit_code)
    with tempfile.TemporaryDirectory(prefix="grpo-trainer-") as scratch, log_file as log_stream:
        supervisor = Supervisor(log_stream)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.terminate())
        reasons = {rank.rank: Path(scratch) / f"rank-{rank.rank}.json" for rank in ranks}
        supervisor.start(
            [sys.executable, "-m", "grpo_trainer.main", *arguments],
            {rank.rank: _environment(rank, reasons[rank.rank]) for rank in ranks},
        )
        ends = supervisor.wait(grace)
        end = cause(ends)
        termination = explain(end, read_termination(reasons[end.rank]), terminated=supervisor.terminated)
    write_termination(termination, termination_log)
    if termination.exit_code != ExitCode.SUCCEEDED:
        logger.error("ends with %s because of rank %s: %s", termination.exit_code, end.rank, termination.message)
    return int(termination.exit_code or 0)


def plan_ranks(environ: Mapping[str, str]) -> tuple[list[Ranks], float]:
    """Return the ranks of this pod, and the seconds they have after SIGTERM.

    Raises:
        ConfigurationError: a variable is wrong, or the number of ranks is not the spec's.
    """
    spec = read_job(Path(environ[env.GRPO_CONFIG])).spec if environ.get(env.GRPO_CONFIG) else None
    nodes = _positive(environ, env.PET_NNODES, 1)
    processes = _positive(environ, env.PET_NPROC_PER_NODE, spec.trainer.processes_per_pod if spec else 1)
    node = _positive(environ, env.PET_NODE_RANK, 0)
    if node >= nodes:
        raise ConfigurationError(env.PET_NODE_RANK, f"{node} is not below {env.PET_NNODES} {nodes}")
    if spec is not None:
        check_world_size(spec, nodes * processes)
    address = environ.get(env.PET_MASTER_ADDR)
    if nodes > 1 and not address:
        raise ConfigurationError(env.PET_MASTER_ADDR, f"is not set, but there are {nodes} pods: name rank 0's host")
    port = _positive(environ, env.PET_MASTER_PORT, env.DEFAULT_MASTER_PORT if address else _free_port())
    first = Ranks(
        rank=node * processes,
        world_size=nodes * processes,
        local_world_size=processes,
        master_addr=address or "127.0.0.1",
        master_port=port,
    )
    grace = float(spec.trainer.termination_grace_period_seconds) if spec else DEFAULT_GRACE_SECONDS
    ranks = [replace(first, rank=first.rank + local, local_rank=local) for local in range(processes)]
    return ranks, max(1.0, grace - _GRACE_MARGIN_SECONDS)


def explain(end: RankEnd, told: Termination | None, *, terminated: bool) -> Termination:
    """Return the pod's reason: what the rank told, or what its end says where it told nothing.

    After SIGTERM a rank that died of it, or had to be killed, ends the pod with 75: its last checkpoint goes on.
    """
    if end.code == ExitCode.SUCCEEDED and told is not None:
        return told
    if terminated and (end.by_us or end.code == -signal.SIGTERM):
        return Termination(
            reason="Terminated",
            message=f"SIGTERM came and rank {end.rank} ended before it had saved: the newest checkpoint goes on. Where "
            "this repeats, raise trainer.terminationGracePeriodSeconds",
            rank=end.rank,
            exit_code=ExitCode.RETRY,
        )
    if told is not None and told.exit_code == end.exit_code:
        return told
    return Termination(
        reason="Succeeded" if end.code == ExitCode.SUCCEEDED else "Crashed",
        message=f"rank {end.rank} {end.describe()}",
        rank=end.rank,
        exit_code=end.exit_code,
    )


def _environment(ranks: Ranks, termination_log: Path) -> dict[str, str]:
    return {
        **os.environ,
        **ranks.to_environ(),
        env.GRPO_TERMINATION_LOG: str(termination_log),  # one per rank: the launcher writes the pod's
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, usable_cpus() // ranks.local_world_size)),
    }


def _open_log(environ: Mapping[str, str], first: Ranks) -> contextlib.AbstractContextManager[BinaryIO | None]:
    """This pod's log file in the volume: pods of failed Jobs may go, their logs with them."""
    output = environ.get(env.GRPO_OUTPUT_DIR)
    if not output:
        return contextlib.nullcontext()
    folder = Path(output) / LOGS
    pod = first.rank // first.local_world_size
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / f"attempt-{environ.get(env.GRPO_ATTEMPT) or 0}-pod-{pod}.log").open("ab")
    except OSError as error:
        raise ConfigurationError(
            env.GRPO_OUTPUT_DIR,
            f"{folder} cannot be written: {error}. Is the volume mounted, and writable for the pod's user "
            "(trainer.pod.securityContext.fsGroup)?",
        ) from error


def _positive(environ: Mapping[str, str], name: str, default: int) -> int:
    try:
        value = int(environ.get(name) or default)
    except ValueError:
        value = -1
    if value < 0:
        raise ConfigurationError(name, f"{environ[name]!r} is not a whole number of 0 or more")
    return value


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
