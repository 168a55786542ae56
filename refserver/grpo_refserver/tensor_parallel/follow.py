"""What the ranks other than 0 do: carry out what rank 0 says, until it says to end, or is gone."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

from grpo_api.env import GRPO_TERMINATION_LOG
from grpo_api.exit_codes import ExitCode
from grpo_api.progress import Termination
from grpo_api.termination import write_termination

from grpo_refserver.engine import Staged, VersionError
from grpo_refserver.settings import ConfigurationError, HubUnreachable, Settings
from grpo_refserver.tensor_parallel.calls import Close, Score, Stage, Swap
from grpo_refserver.tensor_parallel.engine import assemble, stage_together
from grpo_refserver.tensor_parallel.group import RankGroup, RankLostError
from grpo_refserver.tensor_parallel.part import Part
from grpo_refserver.tensor_parallel.ranks import Rank

log = logging.getLogger(__name__)

CRASHED = 1


def run(settings: Settings, rank: Rank) -> int:
    """Joins, loads and follows; returns the exit code. SIGTERM is for rank 0, which drains first."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    try:
        Follower(*assemble(settings, rank)).follow()
    except RankLostError as error:
        # Not the cause of anything: rank 0 has ended, or another one has and whoever started us sees it.
        return _tell("RankLost", str(error), ExitCode.RETRY)
    except ConfigurationError as error:
        return _tell("ConfigurationError", str(error), ExitCode.CONFIGURATION)
    except HubUnreachable as error:
        return _tell("HubUnreachable", str(error), ExitCode.RETRY)
    except Exception as error:
        log.exception("failed")
        return _tell("Crashed", f"{type(error).__name__}: {error}", CRASHED)
    return ExitCode.SUCCEEDED


def leave(code: int) -> NoReturn:
    """Ends the process at once: a peer must not wait for this one's threads and destructors."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Follower:
    """One rank's part, and what it has staged."""

    def __init__(self, part: Part, group: RankGroup) -> None:
        self._part = part
        self._group = group
        self._staged: Staged | None = None
        self._thread: threading.Thread | None = None

    def follow(self) -> None:
        """Carries out call after call; returns when rank 0 says so. Any exception must end the process."""
        log.info("following")
        while True:
            match self._group.receive():
                case Score(groups, temperature):
                    self._part.score(groups, temperature)
                case Stage(version, path):
                    if self._thread is not None:
                        self._thread.join()  # rank 0 has its outcome already: it is over
                    self._staged = None  # its memory is needed
                    self._thread = threading.Thread(target=self._stage, args=(version, path), daemon=True)
                    self._thread.start()
                case Swap(version):
                    assert self._thread is not None
                    self._thread.join()
                    if self._staged is None or self._staged.version != version:
                        raise RuntimeError(f"rank 0 swaps to version {version}, which is not staged here")
                    self._part.swap(self._staged)
                    self._staged = None
                case Close():
                    return

    def _stage(self, version: str, path: Path | None) -> None:
        try:
            self._staged = stage_together(self._part.stage, version, path, self._group)
        except VersionError as error:
            log.info("not staged: %s", error, extra={"version": version})
        except RankLostError:
            pass  # the other thread sees it too


def _tell(reason: str, message: str, code: int) -> int:
    log.log(logging.INFO if reason == "RankLost" else logging.ERROR, "ends: %s", message, extra={"exit_code": code})
    path = os.environ.get(GRPO_TERMINATION_LOG)
    if path:  # whoever started the ranks gave each a file of its own; else the pod's is rank 0's
        write_termination(Termination(reason=reason, message=message, exit_code=code), Path(path))
    return code
