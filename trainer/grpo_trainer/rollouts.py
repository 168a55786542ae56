"""Makes generation batches: prompts → completions → rewards → advantages → reference and old log-probabilities."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from grpo_api.v1alpha1 import Spec
from torch import Tensor

from grpo_trainer.advantages import Advantages, compute_advantages, rewards_tensor
from grpo_trainer.dataset import PromptDataset
from grpo_trainer.distributed import Communicator
from grpo_trainer.generation_batch import GenerationBatch, assemble, scatter_logps
from grpo_trainer.policy import Policy
from grpo_trainer.prompts import Prompt, decode_completions
from grpo_trainer.reference import ReferenceVersion
from grpo_trainer.rewards.runner import RewardResult, RewardRunner
from grpo_trainer.sampler import DataPosition, PromptSampler, rank_rows
from grpo_trainer.seeds import derive

Completer = Callable[[list[list[int]], int], list[list[int]]]
"""(prompt ids, seed) → one completion per prompt; a collective."""


class ReferenceScores(Protocol):
    """Log-probabilities that are on their way."""

    def result(self) -> list[Any]:
        """Wait for them: one float sequence per completion."""
        ...


class ReferenceModel(Protocol):
    """What scores completions under the reference."""

    def submit(
        self, prompts: list[list[int]], completions: list[list[int]], version: ReferenceVersion | None = None
    ) -> ReferenceScores:
        """Ask for log-probabilities under a version of the reference without waiting."""
        ...


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids that mean something to the loop."""

    pad: int
    eos: list[int]


@dataclass(slots=True)
class Rollout:
    """A rank's part of a generation batch, and what is told about it."""

    batch: GenerationBatch
    prompts: list[Prompt]
    completion_ids: list[list[int]]
    completions: list[Any]
    """Text, or messages, as the reward functions saw them."""
    advantages: Advantages
    """Of all ranks."""
    rewards: RewardResult
    """Of this rank."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time per phase."""


class Rollouts:
    """Makes a rank's part of generation batches; every call is a collective."""

    def __init__(
        self,
        spec: Spec,
        communicator: Communicator,
        policy: Policy,
        tokenizer: Any,
        tokens: Tokens,
        dataset: PromptDataset,
        sampler: PromptSampler,
        complete: Completer,
        rewards: RewardRunner,
        reference: ReferenceModel | None,
        on_phase: Callable[[str], None] = lambda phase: None,
        version_of: Callable[[str], ReferenceVersion | None] = lambda name: None,
    ) -> None:
        self._spec = spec
        self._communicator = communicator
        self._policy = policy
        self._tokenizer = tokenizer
        self._tokens = tokens
        self._dataset = dataset
        self._sampler = sampler
        self._complete = complete
        self._rewards = rewards
        self._reference = reference
        self._on_phase = on_phase
        self._version_of = version_of
        optimization = spec.optimization
        # As TRL 1.16: only where weights change before the batch is used up do the log-probabilities of the policy that
        # sampled differ from those of the policy in training.
        self._needs_old_logps = (
            optimization.gradient_accumulation_steps % (spec.steps_per_generation * optimization.num_iterations) != 0
        )

    def prompts(self, position: DataPosition) -> tuple[list[Prompt], DataPosition]:
        """Return this rank's prompts at a position, each numGenerations times, and the position after the batch."""
        indices, after = self._sampler.batch(position)
        rows = rank_rows(
            indices, self._spec.generation.num_generations, self._communicator.rank, self._communicator.world_size
        )
        read = {index: self._dataset[index] for index in dict.fromkeys(rows)}
        return [read[index] for index in rows], after

    def make(
        self, position: DataPosition, number: int, step: int, total_steps: int, *, reference: str
    ) -> tuple[Rollout, DataPosition]:
        """Make generation batch `number` from the prompts at `position`; return it and the position after it.

        Args:
            reference: name of the version of the reference that scores it.

        Raises:
            AgreedFault: on all ranks, where one could not read its prompts, reward a completion or reach the reference.
        """
        agree = self._communicator.agree
        clock = _Clock()
        self._on_phase("generating")
        prompts, after = agree(lambda: self.prompts(position))
        prompt_ids = [prompt.prompt_ids for prompt in prompts]
        seed = derive(self._spec.optimization.seed, "sampling", number, self._communicator.rank)
        completion_ids = self._complete(prompt_ids, seed)
        clock.lap("generation")

        self._on_phase("rewarding")
        scores = None
        if self._reference is not None:
            scores = self._reference.submit(prompt_ids, completion_ids, self._version_of(reference))
        originals = [prompt.prompt for prompt in prompts]
        completions = decode_completions(self._tokenizer, completion_ids, originals)
        rewards = agree(lambda: self._reward(prompts, completions, completion_ids, step, total_steps))
        advantages, mine = self._advantages(rewards)
        clock.lap("rewards")

        batch = assemble(
            prompt_ids,
            completion_ids,
            mine,
            pad_token_id=self._tokens.pad,
            eos_token_ids=self._tokens.eos,
            mask_truncated=self._spec.optimization.mask_truncated_completions,
        )
        if self._needs_old_logps:
            batch = replace(batch, old_logps=self._old_logps(batch))
            clock.lap("old_logprobs")
        if scores is not None:
            waiting = scores
            batch = replace(batch, ref_logps=scatter_logps(agree(waiting.result), batch))
            clock.lap("reference_wait")
        return Rollout(batch, prompts, completion_ids, completions, advantages, rewards, clock.seconds), after

    def _reward(
        self,
        prompts: list[Prompt],
        completions: list[Any],
        completion_ids: list[list[int]],
        step: int,
        total_steps: int,
    ) -> RewardResult:
        return self._rewards.run(
            prompts=[prompt.prompt for prompt in prompts],
            completions=completions,
            completion_ids=completion_ids,
            columns={name: [prompt.columns[name] for prompt in prompts] for name in prompts[0].columns},
            step=step,
            total_steps=total_steps,
        )

    def _advantages(self, rewards: RewardResult) -> tuple[Advantages, Tensor]:
        """Advantages of the whole batch, and this rank's part: a group may lie on two ranks."""
        local = rewards_tensor(rewards.rewards)
        whole = compute_advantages(
            self._communicator.concatenate(local),
            self._rewards.weights,
            num_generations=self._spec.generation.num_generations,
            scale_rewards=self._spec.rewards.scale_rewards,
        )
        first = self._communicator.rank * len(local)
        return whole, whole.advantages[first : first + len(local)]

    def _old_logps(self, batch: GenerationBatch) -> Tensor:
        with self._policy.inference():
            parts = [
                self._policy.logprobs(part.input_ids, part.attention_mask, part.completion_length).logprobs.cpu()
                for part in batch.split(self._spec.steps_per_generation)
            ]
        self._policy.release_weights()
        return torch.cat(parts)


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name] = now - self._last
        self._last = now
