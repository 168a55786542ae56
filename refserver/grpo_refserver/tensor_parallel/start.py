"""What a process of ``grpo-refserver --tensor-parallel-size N`` is: the launcher, the server, or another rank."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from grpo_refserver.settings import Settings
from grpo_refserver.tensor_parallel.launch import launch
from grpo_refserver.tensor_parallel.ranks import Rank


def run(arguments: Sequence[str], settings: Settings) -> int:
    """Runs this process's part; returns the exit code. Raises ConfigurationError.

    Args:
        arguments: of the command line, for the processes that are to be started.
        settings: what they say.
    """
    rank = Rank.of(os.environ, settings.tensor_parallel_size)
    if rank is None:
        return launch(arguments, settings)
    if rank.rank == 0:
        from grpo_refserver import server  # torch: the launcher does without

        return server.run(settings)
    from grpo_refserver.tensor_parallel import follow

    _name_in_logs(rank.rank)
    follow.leave(follow.run(settings, rank))


def _name_in_logs(rank: int) -> None:
    """Adds ``rank=n`` to the lines of this process, which go where rank 0's go."""

    def name(record: logging.LogRecord) -> bool:
        record.rank = rank
        return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(name)
