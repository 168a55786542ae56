"""What happens between two generation batches: a new reference, a checkpoint, the end where SIGTERM came."""

from __future__ import annotations

from grpo_trainer.checkpoint import Checkpoints
from grpo_trainer.config import Settings
from grpo_trainer.distributed import Communicator
from grpo_trainer.interruptions import Terminated
from grpo_trainer.loop import TrainState
from grpo_trainer.progress import ProgressBoard
from grpo_trainer.reference_sync import ReferenceSync
from grpo_trainer.signals import TerminationFlag


class Boundary:
    """The loop's callback at each boundary. The reference goes first, so that a checkpoint knows the new version."""

    def __init__(
        self,
        settings: Settings,
        communicator: Communicator,
        checkpoints: Checkpoints,
        sync: ReferenceSync | None,
        board: ProgressBoard,
        total_steps: int,
        state: TrainState,
    ) -> None:
        """Signals are a flag from here on: `state` is where the loop begins."""
        self._every = settings.spec.checkpoint.every_steps
        self._tells_version = settings.spec.runs_reference
        self._communicator = communicator
        self._checkpoints = checkpoints
        self._sync = sync
        self._board = board
        self._total_steps = total_steps
        self._last = state.step
        self._flag = TerminationFlag()
        self._flag.install()
        if state.step:
            board.update(checkpoint_step=state.step)
        self._tell_version(state)

    def __call__(self, state: TrainState) -> TrainState:
        """A collective.

        Raises:
            Terminated: SIGTERM came to a rank; the state is saved.
        """
        stop = self._communicator.any(self._flag.is_set)
        done = state.step >= self._total_steps
        replaces = self._sync is not None and not done and self._sync.is_due(self._last, state.step)
        saves = stop or done or state.step // self._every > self._last // self._every
        self._last = state.step
        if replaces and self._sync is not None:
            self._board.phase("syncing")
            state = self._sync.replace(state)
            self._tell_version(state)
        if saves:
            self._board.phase("checkpointing")
            self._checkpoints.save(state)
            self._board.update(checkpoint_step=state.step)
        if (replaces or saves) and self._sync is not None:
            self._sync.tidy(state)
        if stop and not done:
            raise Terminated(f"SIGTERM came; step {state.step} of {self._total_steps} is saved and goes on from there")
        return state

    def _tell_version(self, state: TrainState) -> None:
        if self._tells_version:
            self._board.update(reference_version=state.reference)
