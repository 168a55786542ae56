"""Saving and restoring the whole state of the training, all ranks together."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from grpo_api.layout import CHECKPOINTS

from grpo_trainer.checkpoint_files import CheckpointFolder, Saved, read_manifest
from grpo_trainer.config import Settings
from grpo_trainer.distributed import Communicator
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.loop import TrainState
from grpo_trainer.policy import Policy
from grpo_trainer.sampler import DataPosition
from grpo_trainer.versions import BASE

logger = logging.getLogger(__name__)

_DEEPSPEED = "deepspeed"
"""Tag of DeepSpeed's own files: a subfolder of the checkpoint."""


class Checkpoints:
    """Checkpoints of a run. All methods but `references` are collectives."""

    def __init__(self, settings: Settings, communicator: Communicator, policy: Policy) -> None:
        """Claims the run for this attempt: older attempts cannot write any more.

        Raises:
            AgreedFault: a newer attempt has begun, or the folder cannot be written.
        """
        self._settings = settings
        self._communicator = communicator
        self._policy = policy
        self.folder = CheckpointFolder(settings.output_dir / CHECKPOINTS, settings.attempt)
        communicator.agree(lambda: self.folder.claim() if communicator.is_main else None)

    def references(self) -> set[str]:
        """Versions of the reference that the kept checkpoints ask for; rank 0's to call, no collective."""
        return {str(saved.manifest.state.get("reference", BASE)) for saved in self.folder.complete()}

    def save(self, state: TrainState) -> Path:
        """Write a checkpoint, publish it, and let old ones go; return its folder.

        Raises:
            AgreedFault: it could not be written, or a newer attempt has begun: nothing is published.
        """
        started = time.monotonic()
        communicator, folder = self._communicator, self.folder
        communicator.agree(lambda: folder.begin(state.step) if communicator.is_main else None)
        partial = folder.partial(state.step)
        self._policy.engine.save_checkpoint(str(partial), tag=_DEEPSPEED, save_latest=False)
        communicator.agree(lambda: torch.save(random_state(), self._random_file(partial)))

        def publish() -> Path | None:
            if not communicator.is_main:
                return None
            published = folder.publish(state.step, world_size=communicator.world_size, state=asdict(state))
            folder.prune(self._settings.spec.checkpoint.keep)
            return published

        communicator.agree(publish)
        if communicator.is_main:
            logger.info("checkpoint of step %d written in %.1f s", state.step, time.monotonic() - started)
        return folder.root / f"step-{state.step}"

    def restore(self) -> TrainState | None:
        """Load the newest complete checkpoint; None where there is none.

        Raises:
            AgreedFault: it was written by another number of ranks, or a rank does not see its files.
        """
        communicator = self._communicator
        found = communicator.agree(lambda: self.folder.complete()[-1:] if communicator.is_main else [])
        newest: list[Saved] = communicator.from_main(found)
        if not newest:
            return None
        folder, manifest = newest[0].folder, newest[0].manifest

        def check() -> Any:
            if manifest.world_size != communicator.world_size:
                raise ConfigurationError(
                    "trainer.replicas",
                    f"the checkpoint {folder.name} was written by {manifest.world_size} ranks and cannot be resumed by "
                    f"{communicator.world_size}: run {manifest.world_size} ranks",
                )
            if read_manifest(folder) is None:
                raise ConfigurationError(
                    "checkpoint.volume",
                    f"rank {communicator.rank} does not see the files of {folder.name} that rank 0 sees: all pods must "
                    "mount the same volume (access mode ReadWriteMany)",
                )
            return torch.load(self._random_file(folder), weights_only=True)

        states = communicator.agree(check)
        loaded, _ = self._policy.engine.load_checkpoint(str(folder), tag=_DEEPSPEED)
        if loaded is None:
            raise RuntimeError(f"DeepSpeed found no checkpoint in {folder}")
        set_random_state(states)
        position = DataPosition(**manifest.state["position"])
        state = TrainState(**{**manifest.state, "position": position})
        if communicator.is_main:
            logger.info("resumed at step %d from %s (attempt %d)", state.step, folder.name, manifest.attempt)
        return state

    def _random_file(self, folder: Path) -> Path:
        return folder / f"random-rank-{self._communicator.rank}.pt"


def random_state() -> dict[str, Any]:
    """This process's random states, as values that torch.load(weights_only=True) reads."""
    name, keys, position, has_gauss, cached = np.random.get_state()
    version, numbers, gauss = random.getstate()
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Put this process's random states back."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
