"""The engine of one process: a model on a CPU or one GPU."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.groups import Group
from grpo_scoring.logprobs import CompletionLogprobs
from grpo_scoring.scorer import Scorer

from grpo_refserver import turns
from grpo_refserver.engine import Staged
from grpo_refserver.host_memory import give_back, keep_between_forwards
from grpo_refserver.model import LoadedModel, load
from grpo_refserver.settings import ConfigurationError, Settings
from grpo_refserver.version_folder import version_folder
from grpo_refserver.version_weights import load_weights

log = logging.getLogger(__name__)


class LocalEngine:
    """A model in this process.

    A version is loaded on the CPU. There the swap exchanges the model; on a GPU it copies weight by weight into the
    memory of the old one, so that a swap takes one copy of the weights in host memory and nothing on the GPU.
    """

    def __init__(self, loaded: LoadedModel, settings: Settings) -> None:
        self._settings = settings
        self._scorer = self._score_with(loaded.model)
        self.info = self._described(loaded)

    @classmethod
    def start(cls, settings: Settings) -> LocalEngine:
        """Loads the model and warms up. Raises ConfigurationError or HubUnreachable."""
        loaded = load(settings)
        if loaded.device == "cpu":
            keep_between_forwards()
        engine = cls(loaded, settings)
        engine._warm_up()
        return engine

    def batch_tokens(self, sizes: GroupSizes) -> int:
        """What a group takes of ``--max-batch-tokens``, pads counted."""
        return self._scorer.batch_tokens(sizes)

    def score(self, groups: Sequence[Group], temperature: float) -> CompletionLogprobs:
        """One or several forwards, each of at most ``--max-batch-tokens``."""
        with turns.forward():
            return self._scorer.score(groups, temperature=temperature)

    def stage(self, version: str, path: Path | None) -> Staged:
        """Loads a version on the CPU, and checks it there."""
        settings = self._settings
        begun = time.monotonic()
        log.info("loading version", extra={"version": version, "path": path or "-"})
        is_start = version == settings.model_version
        source = settings.model if is_start else str(version_folder(settings.versions_root, version, path))
        model = load_weights(
            self.info,
            source,
            revision=settings.revision if is_start else None,
            attn_implementation=settings.attn_implementation,
        )
        scorer = None if self._in_place else self._score_with(model)
        log.info("version staged", extra={"version": version, "seconds": f"{time.monotonic() - begun:.1f}"})
        return Staged(version, (model, scorer))

    def swap(self, staged: Staged) -> None:
        """Exchanges the model, or its weights."""
        model, scorer = staged.payload
        if scorer is None:
            take_memory(model, self.info.model)
            scorer = self._score_with(model)
        self._scorer = scorer
        self.info = self._described(dataclasses.replace(self.info, version=staged.version, model=model))
        give_back()

    def close(self) -> None:
        """Nothing is held beyond the process's memory."""

    @property
    def _in_place(self) -> bool:
        return self.info.device != "cpu"

    def _score_with(self, model: Any) -> Scorer:
        settings = self._settings
        return Scorer(model, max_batch_tokens=settings.max_batch_tokens, chunk_size=settings.head_chunk_tokens)

    def _described(self, loaded: LoadedModel) -> LoadedModel:
        scorer = self._scorer
        return dataclasses.replace(loaded, shares_prompts=scorer.shares_prompts, why_not=scorer.why_not)

    def _warm_up(self) -> None:
        """On a GPU one forward as large as any will be: memory that does not suffice shows at the start."""
        info, budget = self.info, self._settings.max_batch_tokens
        length = min(info.max_sequence_length, budget, 4096) if self._in_place else min(info.max_sequence_length, 64)
        row = np.arange(length, dtype=np.int32) % info.vocab_size
        prompt, completion = row[: max(1, length // 2)], row[length // 2 :]
        completions = 1 + (budget - length) // max(1, completion.size) if self._in_place else 2
        try:
            self._scorer.score([Group(prompt, (completion,) * max(1, completions))])
        except torch.OutOfMemoryError as error:
            raise ConfigurationError(
                f"a forward of --max-batch-tokens {budget} does not fit {info.device}: lower it "
                f"(spec.reference.maxBatchTokens), or use a smaller dtype or a larger GPU: {error}"
            ) from error
        if info.shares_prompts:
            log.info("each prompt is computed once for all its completions")
        else:
            log.warning("prompts are computed again for each completion", extra={"why": info.why_not or "-"})


def take_memory(model: Any, old: Any) -> None:
    """Copies the weights of ``model`` into the memory of ``old``'s, and gives ``model`` that memory, one by one.

    Both have parameters of the same names and shapes. ``old`` is of no use afterwards.
    """
    memory = {name: parameter.data for name, parameter in old.named_parameters()}
    device = next(iter(memory.values())).device
    for name, parameter in model.named_parameters():
        parameter.data = memory[name].copy_(parameter.data)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to(device))
