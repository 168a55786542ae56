"""Which prompts come next, as a pure function of the position in the data.

The global order depends on seed and epoch alone, not on the number of ranks, and equals that of TRL 1.16's
`RepeatSampler` (`trl/trainer/utils.py`). The position is the only state: it goes into the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from grpo_trainer.errors import DatasetError


@dataclass(frozen=True, slots=True)
class DataPosition:
    """How far the data has been read."""

    epoch: int = 0
    index: int = 0
    """Prompts of this epoch that have been used."""


class PromptSampler:
    """Generation batches of distinct prompts, shuffled anew each epoch.

    An epoch's last prompts that do not fill a batch are left out, as in TRL.

    Raises:
        DatasetError: the dataset does not fill one batch.
    """

    def __init__(self, dataset_size: int, prompts_per_batch: int, *, seed: int, shuffle: bool = True) -> None:
        if dataset_size < prompts_per_batch:
            raise DatasetError(
                "dataset.name",
                f"{dataset_size} prompts are fewer than one generation batch needs ({prompts_per_batch} = "
                "perDeviceTrainBatchSize × ranks × stepsPerGeneration / numGenerations): give more prompts, or "
                "lower optimization.perDeviceTrainBatchSize or generation.stepsPerGeneration",
            )
        self.dataset_size = dataset_size
        self.prompts_per_batch = prompts_per_batch
        self.seed = seed
        self.shuffle = shuffle
        self._generator = torch.Generator()
        self._epoch = -1
        self._order: list[int] = []

    @property
    def batches_per_epoch(self) -> int:
        """Generation batches in one pass over the prompts."""
        return self.dataset_size // self.prompts_per_batch

    def batch(self, position: DataPosition) -> tuple[list[int], DataPosition]:
        """Return the prompt indices of the global generation batch at `position`, and the position after it."""
        if position.index + self.prompts_per_batch > self.dataset_size:
            position = DataPosition(position.epoch + 1, 0)
        end = position.index + self.prompts_per_batch
        return self.order(position.epoch)[position.index : end], DataPosition(position.epoch, end)

    def order(self, epoch: int) -> list[int]:
        """Return the order of the whole dataset in an epoch: the epoch-th permutation that the seed gives."""
        if not self.shuffle:
            return list(range(self.dataset_size))
        if epoch < self._epoch or self._epoch < 0:
            self._generator.manual_seed(self.seed)
            self._epoch = -1
        while self._epoch < epoch:
            self._order = torch.randperm(self.dataset_size, generator=self._generator).tolist()
            self._epoch += 1
        return self._order


def rank_rows(prompt_indices: list[int], num_generations: int, rank: int, world_size: int) -> list[int]:
    """Return this rank's rows of a global batch: each prompt repeated `num_generations` times, cut into equal runs.

    A prompt's completions may so be spread over two neighbouring ranks.

    Raises:
        ValueError: the rows cannot be shared out evenly.
    """
    rows = [index for index in prompt_indices for _ in range(num_generations)]
    local, rest = divmod(len(rows), world_size)
    if rest:
        raise ValueError(f"{len(rows)} rows cannot be shared out evenly over {world_size} ranks")
    return rows[rank * local : (rank + 1) * local]


def total_optimizer_steps(
    batches_per_epoch: int,
    epochs: float,
    *,
    steps_per_generation: int,
    num_iterations: int,
    gradient_accumulation_steps: int,
) -> int:
    """Optimizer steps that `epochs` passes over the prompts take (as transformers' Trainer counts them)."""
    micro_batches = batches_per_epoch * steps_per_generation * num_iterations
    return math.ceil(epochs * max(1, math.ceil(micro_batches / gradient_accumulation_steps)))
