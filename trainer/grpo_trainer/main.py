"""One rank of the trainer: `python -m grpo_trainer.main`, started by `grpo-trainer` or by torchrun.

Every error ends in an exit code that says whether another attempt could help (grpo_api.exit_codes), and in a reason
in the termination log.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch
from grpo_api import env
from grpo_api.progress import Termination
from grpo_api.termination import write_termination

from grpo_trainer import config, flags
from grpo_trainer.config import Settings
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.faults import CRASH, AgreedFault, Fault, is_peer_loss
from grpo_trainer.interruptions import Terminated
from grpo_trainer.progress import ProgressBoard
from grpo_trainer.ranks import Ranks, alone_if_unset

logger = logging.getLogger("grpo_trainer.main")  # __name__ is __main__

PEER_LOST_SECONDS = 5.0
"""How long a rank that only lost a peer waits before it ends, so that the cause's own end is seen first."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Train, and leave the process with the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    log = os.environ.get(env.GRPO_TERMINATION_LOG)
    termination_log = Path(log) if log else None
    rank = 0
    board = ProgressBoard(attempt=0)
    try:
        rank = Ranks.of(os.environ).rank
        set_up_logging(rank)
        os.environ.update(alone_if_unset(os.environ))
        settings = read_settings(arguments)
        board = ProgressBoard(settings.attempt)
        if settings.spec.hub.offline:
            os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub's library is imported, below
        quieten_libraries()
        from grpo_trainer.train import train  # DeepSpeed takes seconds to import: wrong settings are told before

        termination = train(settings, board)
    except Exception as error:  # noqa: BLE001  (the last resort: every error becomes an exit code and a reason)
        termination = _explain(error, rank)
        termination.step = board.progress.step
    write_termination(termination, termination_log)
    _leave(int(termination.exit_code or 0))


def read_settings(arguments: Sequence[str]) -> Settings:
    """Read flags, or the file GRPO_CONFIG, and the environment.

    Raises:
        ConfigurationError: something is wrong or missing; it is named.
    """
    path = os.environ.get(env.GRPO_CONFIG)
    if arguments:
        job = flags.parse(arguments, os.environ)
        if path:
            logger.warning("%s=%s is not read, because flags are given", env.GRPO_CONFIG, path)
    elif path:
        job = config.read_job(Path(path))
    else:
        raise ConfigurationError(env.GRPO_CONFIG, "is not set and no flags are given: --help lists them")
    return config.load(job, os.environ)


def set_up_logging(rank: int) -> None:
    """Our lines from every rank; of the libraries only warnings."""
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
        force=True,
    )
    logging.getLogger("grpo_trainer").setLevel(logging.INFO)


def quieten_libraries() -> None:
    """Keep out of the log what the libraries say at every start; to be called before they are imported."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed warns where it has to find out
    logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # DeepSpeed calls collectives by names that torch has renamed: a warning for each call.
    warnings.filterwarnings("ignore", message=".*torch.distributed.*is deprecated", category=FutureWarning)


def _explain(error: Exception, rank: int) -> Termination:
    fault = Fault.of(error, rank)
    if isinstance(error, Terminated):
        logger.info("%s", fault.message)
    elif not isinstance(error, AgreedFault):  # an agreed one was told when it came up
        logger.error("%s", fault.message, exc_info=error if fault.exit_code == CRASH else None)
    if is_peer_loss(error):
        logger.info("waiting %g s, so that the cause is seen first", PEER_LOST_SECONDS)
        time.sleep(PEER_LOST_SECONDS)
    return Termination(reason=fault.reason, message=fault.message, rank=fault.rank, exit_code=fault.exit_code)


def _leave(code: int) -> NoReturn:
    """End at once: libraries' own clean-up may abort or hang, which would hide the exit code."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
