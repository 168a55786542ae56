"""Iterative GRPO: the policy becomes the reference, between two generation batches (`reference.sync`)."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_api.layout import versions
from grpo_api.v1alpha1 import Spec
from transformers import AutoModelForCausalLM

from grpo_trainer.checkpoint import Checkpoints
from grpo_trainer.config import Settings
from grpo_trainer.distributed import Communicator
from grpo_trainer.final_model import consolidated_weights, write_model
from grpo_trainer.loop import TrainState
from grpo_trainer.mixing import mix_folder
from grpo_trainer.policy import Policy
from grpo_trainer.reference import ReferenceVersion
from grpo_trainer.versions import BASE, VersionFolder

logger = logging.getLogger(__name__)

FILE_SIZE = "2GB"
"""Of weights; a mixture holds the tensors of one file, and a server may stage file by file."""


def asked_version(settings: Settings, name: str) -> ReferenceVersion | None:
    """The version that requests ask for, by its name in the state; None leaves it to the server: it has but one."""
    if settings.spec.reference.sync is None and name == BASE:
        return None
    folder = None if name == BASE else str(Path(versions(str(settings.output_dir))) / name)
    return ReferenceVersion(name, folder)


class ReferenceSync:
    """Replaces the reference where it is due, and deletes versions that nobody needs. All methods are collectives."""

    def __init__(
        self, settings: Settings, communicator: Communicator, policy: Policy, tokenizer: Any, checkpoints: Checkpoints
    ) -> None:
        sync = settings.spec.reference.sync
        assert sync is not None
        self._spec = settings.spec
        self._every, self._alpha = sync.every_steps, sync.mixup_alpha
        self._communicator = communicator
        self._policy = policy
        self._tokenizer = tokenizer
        self._checkpoints = checkpoints
        self._folder = VersionFolder(Path(versions(str(settings.output_dir))), settings.attempt, checkpoints.folder)

    def begin(self, state: TrainState) -> None:
        """Check that the version in force is there; delete what an earlier attempt left over.

        Raises:
            AgreedFault: it is not there.
        """

        def check() -> None:
            if self._communicator.is_main:
                self._folder.check(state.reference)
                self._prune(state)

        self._communicator.agree(check)

    def is_due(self, before: int, step: int) -> bool:
        """Whether a multiple of everySteps lies in the steps after `before` up to `step`, those of a batch."""
        return step // self._every > before // self._every

    def replace(self, state: TrainState) -> TrainState:
        """Write the policy, or its mixture with the reference in force, as a new version; it is in force from now on.

        Raises:
            AgreedFault: it could not be written, or a newer attempt has begun: the old version stays in force.
        """
        started = time.monotonic()
        communicator, folder = self._communicator, self._folder
        begun = communicator.agree(lambda: folder.begin(state.step) if communicator.is_main else "")
        name = communicator.from_main(begun)
        self._write_policy(folder.partial(name))

        def publish() -> None:
            if not communicator.is_main:
                return
            if self._alpha < 1.0:
                with self._previous(state.reference) as previous:
                    mix_folder(folder.partial(name), previous, self._alpha)
            folder.publish(name)
            logger.info("the reference is now %s, written in %.1f s", name, time.monotonic() - started)

        communicator.agree(publish)
        return replace(state, reference=name)

    def tidy(self, state: TrainState) -> None:
        """Delete the versions that neither the state nor a kept checkpoint asks for.

        Raises:
            AgreedFault: a newer attempt has begun.
        """
        self._communicator.agree(lambda: self._prune(state) if self._communicator.is_main else None)

    def _prune(self, state: TrainState) -> None:
        self._folder.prune({state.reference, *self._checkpoints.references()})

    def _write_policy(self, folder: Path) -> None:
        """The whole model is in rank 0's memory only in here."""
        weights = consolidated_weights(self._policy)

        def write() -> None:
            if self._communicator.is_main:
                write_model(folder, self._policy, self._tokenizer, weights, max_shard_size=FILE_SIZE)

        self._communicator.agree(write)

    @contextmanager
    def _previous(self, name: str) -> Iterator[Path]:
        """The folder of the version in force, with the names and files that `save_pretrained` gives.

        The base is written anew for this: what users have may be of an older layout, or no safetensors.
        """
        if name != BASE:
            yield self._folder.path(name)
            return
        folder = self._folder.partial(BASE)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _load_base(self._spec).save_pretrained(folder, max_shard_size=FILE_SIZE)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _load_base(spec: Spec) -> Any:
    """The model that the reference server was started with, in its own dtype, on the CPU."""
    name, revision = spec.reference_model
    return AutoModelForCausalLM.from_pretrained(
        name, revision=revision, trust_remote_code=spec.model.trust_remote_code, dtype="auto"
    )
