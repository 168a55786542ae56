"""Sampling completions with transformers, whole model gathered or layer by layer: both give the same tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from grpo_api.v1alpha1 import Generation
from torch import Tensor
from transformers import GenerationConfig

from grpo_trainer.gather import gathered
from grpo_trainer.policy import Policy
from grpo_trainer.prompts import cut_after_eos, left_pad
from grpo_trainer.seeds import seeded


def sampling_config(generation: Generation, *, pad_token_id: int, eos_token_ids: list[int]) -> GenerationConfig:
    """The spec's settings as transformers' GenerationConfig; what the spec does not name is off."""
    return GenerationConfig(
        max_new_tokens=generation.max_completion_length,
        do_sample=True,
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        min_p=generation.min_p,
        repetition_penalty=generation.repetition_penalty,
        pad_token_id=pad_token_id,
        eos_token_id=eos_token_ids,
        use_cache=True,
    )


class Generator:
    """Generates a rank's completions with the policy's present weights."""

    def __init__(self, policy: Policy, config: GenerationConfig, *, gather: bool, world_size: int) -> None:
        """`gather`: hold the whole model while generating (ZeRO-3 only); else DeepSpeed fetches layer by layer."""
        self.gather = gather
        self._policy = policy
        self._config = config
        # Layer by layer every forward is a collective: a rank that is done must go on until all are. transformers'
        # own default depends on whether an HfDeepSpeedConfig happens to be alive, so it is always said.
        self._synced = policy.is_sharded and not gather and world_size > 1

    def generate(self, prompts: list[list[int]], seed: int) -> list[list[int]]:
        """Sample one completion per prompt, each up to and including its first end-of-sequence token.

        A collective under ZeRO-3.

        Args:
            prompts: token ids, each prompt as often as completions are wanted.
            seed: of this rank's draws.
        """
        pad = self._config.pad_token_id
        ids, mask = left_pad(prompts, pad)
        policy = self._policy
        with policy.inference(), self._weights(), _only(policy.module, self._config), seeded(seed, policy.device):
            output: Tensor = policy.module.generate(
                input_ids=ids.to(policy.device),
                attention_mask=mask.to(policy.device),
                generation_config=self._config,
                synced_gpus=self._synced,
            )
        return cut_after_eos(output[:, ids.shape[1] :].cpu(), self._config.eos_token_id)

    @contextlib.contextmanager
    def _weights(self) -> Iterator[None]:
        if self.gather:
            with gathered(self._policy.module):
                yield
            return
        yield
        self._policy.release_weights()


@contextlib.contextmanager
def _only(model: Any, config: GenerationConfig) -> Iterator[None]:
    """Keep the model folder's own sampling settings out: generate() fills in from them what `config` leaves unset."""
    own = model.generation_config
    model.generation_config = GenerationConfig(pad_token_id=config.pad_token_id, eos_token_id=config.eos_token_id)
    try:
        yield
    finally:
        model.generation_config = own
