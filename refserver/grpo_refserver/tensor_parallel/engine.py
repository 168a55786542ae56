"""The engine of a model that is spread over several devices, as rank 0 sees it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.groups import Group
from grpo_scoring.logprobs import CompletionLogprobs

from grpo_refserver.engine import EngineFailedError, Refusal, Staged, VersionError
from grpo_refserver.settings import ConfigurationError, Settings
from grpo_refserver.tensor_parallel.calls import Close, Score, Stage, Swap
from grpo_refserver.tensor_parallel.group import RankGroup, RankLostError
from grpo_refserver.tensor_parallel.part import Part
from grpo_refserver.tensor_parallel.ranks import Rank

log = logging.getLogger(__name__)


class TensorParallelEngine:
    """Tells the other ranks what to do, and does its own part of it.

    What cannot be taken back on all ranks together (a forward that failed here may go on there) ends the engine: the
    process ends, whoever started the ranks ends the others, and the pod starts again.
    """

    def __init__(self, part: Part, group: RankGroup) -> None:
        self._part = part
        self._group = group
        self.info = part.info
        self._staging = threading.Lock()

    @classmethod
    def start(cls, settings: Settings) -> TensorParallelEngine:
        """Waits for the other ranks and loads. Raises ConfigurationError or HubUnreachable."""
        rank = Rank.of(os.environ, settings.tensor_parallel_size)
        if rank is None or rank.rank:
            raise ConfigurationError("--tensor-parallel-size: this process is not rank 0 of a launcher")
        return cls(*assemble(settings, rank))

    def batch_tokens(self, sizes: GroupSizes) -> int:
        """What a group takes of ``--max-batch-tokens``, pads counted."""
        return self._part.batch_tokens(sizes)

    def score(self, groups: Sequence[Group], temperature: float) -> CompletionLogprobs:
        """Scores on all devices. Raises EngineFailedError."""
        try:
            self._group.send(Score(groups, temperature))
            return self._part.score(groups, temperature)
        except Exception as error:
            raise EngineFailedError(f"a forward over {self._group.rank.size} devices failed: {error}") from error

    def stage(self, version: str, path: Path | None) -> Staged:
        """Every rank reads its part. Raises VersionError if one of them could not; then none keeps it."""
        with self._staging:
            try:
                self._group.send(Stage(version, path))
                return stage_together(self._part.stage, version, path, self._group)
            except RankLostError as error:
                raise VersionError(f"version {version}: {error}", Refusal.UNAVAILABLE) from error

    def swap(self, staged: Staged) -> None:
        """All ranks swap between the same two batches. Raises EngineFailedError."""
        try:
            self._group.send(Swap(staged.version))
            self._part.swap(staged)
            self.info = self._part.info
        except Exception as error:
            raise EngineFailedError(f"the swap to version {staged.version} failed: {error}") from error

    def close(self) -> None:
        """Lets the other ranks end."""
        with contextlib.suppress(RankLostError):
            self._group.send(Close())


def assemble(settings: Settings, rank: Rank) -> tuple[Part, RankGroup]:
    """Joins the other ranks and loads this one's part. Raises ConfigurationError or HubUnreachable."""
    group = RankGroup.join(rank, settings.device)
    part = Part.load(settings, group)
    decisions = json.dumps([part.info.shares_prompts, part.info.why_not, part.info.vocab_size, part.info.dtype])
    if len(set(group.gather(decisions))) > 1:
        raise EngineFailedError(f"the ranks differ in how they score: rank {rank.rank} has {decisions}")
    return part, group


def stage_together(
    stage: Callable[[str, Path | None], Staged], version: str, path: Path | None, group: RankGroup
) -> Staged:
    """Stages this rank's part and learns how it went elsewhere. Raises VersionError if it failed anywhere."""
    staged: Staged | None = None
    try:
        staged, outcome = stage(version, path), ["", "", ""]
    except VersionError as error:
        outcome = [str(error), error.refusal.value, error.field]
    except Exception as error:  # whatever it is, the old version serves on, and the other ranks are waiting
        log.exception("staging failed", extra={"version": version})
        outcome = [f"{type(error).__name__}; the server's log has the details", Refusal.BAD.value, "versionPath"]
    for rank, (problem, refusal, field) in enumerate(map(json.loads, group.gather(json.dumps(outcome)))):
        if problem:
            raise VersionError(f"{problem} (rank {rank})" if rank else problem, Refusal(refusal), field)
    assert staged is not None
    return staged
