"""The training loop.

    prompts → generate → rewards → advantages → reference and old log-probabilities      (`rollouts`)
        → numIterations × stepsPerGeneration micro-batches: loss → backward → step       (here)
        → metrics, a new reference, checkpoint

Semantics of stepsPerGeneration, gradientAccumulationSteps, numIterations and the shuffling inside a generation batch
are TRL 1.16's (`trl/trainer/grpo_trainer.py`, `_prepare_inputs`, `_compute_loss`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from grpo_api.v1alpha1 import Spec
from torch import Tensor

from grpo_trainer.distributed import Communicator
from grpo_trainer.generation_batch import GenerationBatch
from grpo_trainer.losses import LossOutput, LossSettings, LossStatistics, Normalization, grpo_loss
from grpo_trainer.policy import Policy
from grpo_trainer.rollouts import Rollout, Rollouts
from grpo_trainer.sampler import DataPosition
from grpo_trainer.seeds import derive
from grpo_trainer.versions import BASE


@dataclass(frozen=True, slots=True)
class TrainState:
    """How far the training is; with weights, optimizer and random states all that a resumed run needs."""

    step: int = 0
    """Optimizer steps done."""
    batch: int = 0
    """Generation batches done."""
    tokens: int = 0
    """Tokens trained on, over all ranks (prompts and completions)."""
    position: DataPosition = field(default_factory=DataPosition)
    reference: str = BASE
    """Version of the reference in force."""


@dataclass(slots=True)
class Window:
    """What is known of one optimizer step on this rank: sums over its micro-batches."""

    losses: list[float] = field(default_factory=list)
    """Of each micro-batch, already divided for accumulation: their sum is the step's loss (TRL logs that)."""
    statistics: list[LossStatistics] = field(default_factory=list)
    grad_norm: float = 0.0
    learning_rate: float = 0.0


class Loop:
    """Trains until `total_steps`; the callbacks see every optimizer step and every boundary of a generation batch."""

    def __init__(
        self,
        spec: Spec,
        communicator: Communicator,
        policy: Policy,
        rollouts: Rollouts,
        *,
        total_steps: int,
        on_rollout: Callable[[TrainState, Rollout], None],
        on_step: Callable[[TrainState, Window], None],
        on_boundary: Callable[[TrainState], TrainState],
    ) -> None:
        self._spec = spec
        self._communicator = communicator
        self._policy = policy
        self._rollouts = rollouts
        self._total_steps = total_steps
        self._on_rollout = on_rollout
        self._on_step = on_step
        self._on_boundary = on_boundary
        self._loss_settings = loss_settings(spec)

    def run(self, state: TrainState) -> TrainState:
        """Train from a state to the end; every call on every rank is a collective."""
        while state.step < self._total_steps:
            rollout, position = self._rollouts.make(
                state.position, state.batch, state.step, self._total_steps, reference=state.reference
            )
            tokens = int(self._communicator.sum(rollout.batch.attention_mask.sum()))
            state = replace(state, tokens=state.tokens + tokens)
            self._on_rollout(state, rollout)
            for window in self._windows(rollout.batch, state.batch):
                state = replace(state, step=state.step + 1)
                self._on_step(state, window)
                if state.step == self._total_steps:
                    break
            state = replace(state, batch=state.batch + 1, position=position)
            state = self._on_boundary(state)
        return state

    def _windows(self, batch: GenerationBatch, number: int) -> Iterator[Window]:
        """Train on a generation batch; yield after each optimizer step."""
        spec = self._spec
        tokens = float(self._communicator.sum(batch.mask.sum().double()))
        normalization = Normalization(
            gradient_accumulation_steps=spec.optimization.gradient_accumulation_steps,
            steps_per_generation=spec.steps_per_generation,
            num_items_in_batch=tokens,
            world_size=self._communicator.world_size,
        )
        micro_batches = list(batch.rows(self._shuffled(len(batch), number)).split(spec.steps_per_generation))
        window = Window()
        for _ in range(spec.optimization.num_iterations):
            for micro_batch in micro_batches:
                output = self._loss(micro_batch, normalization)
                self._policy.backward(output.loss)
                window.losses.append(float(output.loss.detach()))
                window.statistics.append(output.statistics)
                window.learning_rate = self._policy.learning_rate
                grad_norm = self._policy.step()
                if grad_norm is not None:
                    window.grad_norm = grad_norm
                    yield window
                    window = Window()

    def _loss(self, batch: GenerationBatch, normalization: Normalization) -> LossOutput:
        scored = self._policy.logprobs(batch.input_ids, batch.attention_mask, batch.completion_length, entropy=True)
        device = scored.logprobs.device
        return grpo_loss(
            scored.logprobs,
            batch.advantages.to(device),
            batch.mask.to(device),
            settings=self._loss_settings,
            normalization=normalization,
            old_logps=None if batch.old_logps is None else batch.old_logps.to(device),
            ref_logps=None if batch.ref_logps is None else batch.ref_logps.to(device),
            entropies=scored.entropy,
        )

    def _shuffled(self, rows: int, number: int) -> Tensor:
        """The order in which this rank's rows of generation batch `number` are trained on, (rows,)."""
        generator = torch.Generator()
        generator.manual_seed(derive(self._spec.optimization.seed, "rows", number, self._communicator.rank))
        return torch.randperm(rows, generator=generator)


def loss_settings(spec: Spec) -> LossSettings:
    """The part of a spec that the loss depends on."""
    optimization = spec.optimization
    return LossSettings(
        loss_type=optimization.loss_type,
        beta=optimization.beta,
        epsilon=optimization.epsilon,
        epsilon_high=optimization.epsilon_high,
        delta=optimization.delta,
        importance_sampling_level=optimization.importance_sampling_level,
        use_bias_correction_kl=optimization.use_bias_correction_kl,
        max_completion_length=spec.generation.max_completion_length,
    )
