"""Generating answers to a dataset's prompts and judging them, in one process and as training does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig

from grpo_trainer.prompts import (
    Prompt,
    cut_after_eos,
    decode_completions,
    eos_token_ids,
    is_truncated,
    left_pad,
    pad_token_id,
)
from grpo_trainer.rewards.runner import RewardRunner


@dataclass(frozen=True, slots=True)
class Result:
    """What one way of generating gave, over all prompts."""

    rewards: dict[str, float | None]
    """Mean per reward function over the completions that it scored; None where it scored none."""
    best: dict[str, float | None]
    """Mean over prompts of the best of each prompt's completions."""
    unscored: dict[str, int]
    """Completions for which a function returned None."""
    mean_length: float
    """Tokens per completion, end-of-sequence token included."""
    truncated: float
    """Share of completions cut at the length limit."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A result, and the completions behind it."""

    result: Result
    completions: list[tuple[Prompt, Any, list[float | None]]]
    """Prompt, completion as the reward functions saw it, rewards; a prompt's completions next to each other."""


class Evaluator:
    """A model, a dataset and reward functions."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        prompts: Sequence[Prompt],
        rewards: RewardRunner,
        *,
        max_completion_length: int,
        batch_size: int,
    ) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._rewards = rewards
        self._batch_size = batch_size
        self._pad = pad_token_id(tokenizer)
        self._eos = eos_token_ids(model.generation_config, tokenizer)
        self._limits = {
            "max_new_tokens": max_completion_length,
            "pad_token_id": self._pad,
            "eos_token_id": self._eos,
        }
        # generate() fills in what it is not told from the model folder's own settings: none are left there.
        model.generation_config = GenerationConfig(pad_token_id=self._pad, eos_token_id=self._eos)

    def greedy(self) -> Judged:
        """One completion per prompt, the likeliest token each time."""
        return self._judge(self.generate(1, do_sample=False), 1)

    def sampled(self, num_generations: int, temperature: float, seed: int) -> Judged:
        """`num_generations` completions per prompt, from the whole distribution."""
        torch.manual_seed(seed)
        return self._judge(
            self.generate(num_generations, do_sample=True, temperature=temperature, top_k=0, top_p=1.0),
            num_generations,
        )

    def generate(self, num_generations: int, **options: Any) -> list[list[int]]:
        """Token ids of each prompt's completions, those of one prompt next to each other.

        `options` are transformers' GenerationConfig's; what they do not name is off.
        """
        config = GenerationConfig(**self._limits, **options)
        rows = [prompt.prompt_ids for prompt in self._prompts for _ in range(num_generations)]
        completions: list[list[int]] = [[] for _ in rows]
        for chunk in _chunks_of_like_length(rows, self._batch_size):
            ids, mask = left_pad([rows[i] for i in chunk], self._pad)
            device = self._model.device
            with torch.no_grad():
                output = self._model.generate(
                    input_ids=ids.to(device), attention_mask=mask.to(device), generation_config=config
                )
            for i, completion in zip(chunk, cut_after_eos(output[:, ids.size(1) :].cpu(), self._eos), strict=True):
                completions[i] = completion
        return completions

    def _judge(self, completion_ids: list[list[int]], num_generations: int) -> Judged:
        prompts = [prompt for prompt in self._prompts for _ in range(num_generations)]
        texts = decode_completions(self._tokenizer, completion_ids, [prompt.prompt for prompt in prompts])
        scored = self._rewards.run(
            prompts=[prompt.prompt for prompt in prompts],
            completions=texts,
            completion_ids=completion_ids,
            columns={name: [prompt.columns[name] for prompt in prompts] for name in prompts[0].columns},
        )
        means: dict[str, float | None] = {}
        best: dict[str, float | None] = {}
        unscored: dict[str, int] = {}
        for column, name in enumerate(self._rewards.names):
            rewards = [row[column] for row in scored.rewards]
            means[name] = _mean(rewards)
            unscored[name] = rewards.count(None)
            groups = [rewards[i : i + num_generations] for i in range(0, len(rewards), num_generations)]
            best[name] = _mean([max((r for r in group if r is not None), default=None) for group in groups])
        result = Result(
            rewards=means,
            best=best,
            unscored=unscored,
            mean_length=sum(map(len, completion_ids)) / len(completion_ids),
            truncated=sum(is_truncated(ids, self._eos) for ids in completion_ids) / len(completion_ids),
        )
        return Judged(result, list(zip(prompts, texts, scored.rewards, strict=True)))


def _chunks_of_like_length(rows: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Row numbers in batches of rows that are about as long: little padding."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
