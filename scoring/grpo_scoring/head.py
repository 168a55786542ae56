"""Log-probabilities from hidden states with the output head applied in chunks: full logits never exist.

Logits of (B, T, vocabulary) are the largest tensor of a GRPO step (8 rows of 512 tokens at a vocabulary of
152,000 are 2.5 GB in fp32). Here at most ``chunk_size`` positions are projected at a time, forward and backward.

The chunk loop runs inside **one** call of the head module. Under ZeRO-3 the hooks that gather a module's weights
are collectives and fire once per module call; ranks hold different numbers of tokens, so one call per chunk would
let ranks disagree on the number of collectives, and hang.

Without gradient a chunk is cut over the vocabulary instead (`_tiled`): as many logits at a time, but the head's weight
is read once for 2048 positions. Chunks of few positions read all of it for each, which on a CPU takes longer than
the products (SmolLM2's head, 4096 positions, two cores: 2.15 s in chunks of 85 positions, 1.33 s so).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from grpo_scoring.module_forward import plain_forward, replace_forward

DEFAULT_CHUNK_SIZE = 256
"""Positions projected at a time: 256 x 152,000 fp32 logits are 156 MB."""
_TILE_POSITIONS = 2048
"""Positions of a tile, where logits are cut over the vocabulary too."""


class HeadOutput(NamedTuple):
    """Per position, fp32, shape (N,). ``entropy`` (nats, no gradient) is None unless asked for."""

    logprobs: Tensor
    entropy: Tensor | None


class CausalLM(Protocol):
    """The part of transformers' PreTrainedModel that is used here."""

    config: Any

    def get_output_embeddings(self) -> nn.Module | None:
        """The head: hidden states (..., D) to logits (..., V)."""
        ...


@dataclass(frozen=True)
class LogitTransform:
    """What a model's own forward does to logits after the head: a scale, then a soft-cap ``c * tanh(z / c)``.

    ``softcap`` is Gemma's ``final_logit_softcapping``. The scale is Cohere's ``logit_scale``, ``output_multiplier``
    or Falcon-H1's ``lm_head_multiplier``; Granite and MiniCPM3 divide by ``logits_scaling``, HyperCLOVA X multiplies.
    """

    scale: float = 1.0
    softcap: float | None = None

    @classmethod
    def of(cls, config: Any) -> LogitTransform:
        """Reads it from a model's config (of its text part, where there are several)."""
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        scale = 1.0
        for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
            value = getattr(text, name, None)
            if value is not None:
                scale *= float(value)
        divisor = getattr(text, "logits_scaling", None)
        if divisor is not None:
            scale = scale * divisor if text.model_type == "hyperclovax" else scale / divisor
        return cls(scale, getattr(text, "final_logit_softcapping", None) or None)

    def __call__(self, logits: Tensor) -> Tensor:
        """Applies it to fp32 logits of any shape."""
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits


def patch_head(model: CausalLM) -> None:
    """Teaches the head to score: ``head(hidden, targets)`` gives a HeadOutput; ``head(hidden)`` is unchanged.

    Idempotent. Call it before ``deepspeed.initialize``. Weights, names, tying and generation are left alone.

    Raises:
        ValueError: the model has no output head.
    """
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(f"{type(model).__name__} has no output head: a causal language model is needed")
    transform = LogitTransform.of(model.config)

    def score(
        head: nn.Module,
        hidden: Tensor,
        targets: Tensor,
        *,
        temperature: float = 1.0,
        chunk_size: int = DEFAULT_CHUNK_SIZE,
        recompute: bool = True,
        entropy: bool = False,
    ) -> HeadOutput:
        project = plain_forward(head)
        recompute = recompute and torch.is_grad_enabled()

        def scaled(logits: Tensor) -> Tensor:
            logits = transform(logits.float())
            return logits / temperature if temperature != 1.0 else logits

        if not torch.is_grad_enabled() and not entropy and type(head) is nn.Linear:
            return HeadOutput(_tiled(head, hidden, targets, scaled, chunk_size), None)

        def one(states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor | None]:
            logits = scaled(project(states))
            log_sum = logits.logsumexp(-1)
            logprobs = logits.gather(-1, ids[:, None])[:, 0] - log_sum
            return logprobs, _entropy(logits, log_sum) if entropy else None

        parts = [
            checkpoint(one, states, ids, use_reentrant=False, preserve_rng_state=False)
            if recompute
            else one(states, ids)
            for states, ids in zip(torch.split(hidden, chunk_size), torch.split(targets, chunk_size), strict=True)
        ]
        return HeadOutput(
            torch.cat([part[0] for part in parts]),
            torch.cat([part[1] for part in parts if part[1] is not None]) if entropy else None,
        )

    teach(head, score)


def teach(head: nn.Module, score: Callable[..., HeadOutput]) -> None:
    """Lets ``head(hidden, targets, **options)`` be ``score(head, hidden, targets, **options)``.

    The options are those of ``head_logprobs``. ``head(hidden)`` is unchanged, and so is a head that has been taught.
    """

    def forward(self: nn.Module, hidden: Tensor, targets: Tensor | None = None, **options: Any) -> Tensor | HeadOutput:
        if targets is not None:
            return score(self, hidden, targets, **options)
        logits: Tensor = plain_forward(self)(hidden)
        return logits

    replace_forward(head, forward)


def head_logprobs(
    model: CausalLM,
    hidden: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    recompute: bool = True,
    entropy: bool = False,
) -> HeadOutput:
    """Log-softmax of the logits divided by ``temperature``, at the targets; log-sum-exp in fp32.

    Args:
        model: a transformers causal LM; its head is patched where it is not yet.
        hidden: (N, D) states of the backbone, each the one that predicts its target; N >= 1.
        targets: (N,) token ids.
        temperature: > 0. Applied after the model's own logit scale and soft-cap, as in sampling.
        chunk_size: positions projected at a time; without gradient as many logits, in tiles.
        recompute: under grad, project again in backward rather than keep the logits of every chunk.
        entropy: also give the entropy of each position, without gradient.
    """
    if targets.numel() == 0:
        raise ValueError("no targets: a head call with no position would skip ZeRO-3's collectives on this rank")
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, got {temperature}")
    patch_head(model)
    head = model.get_output_embeddings()
    assert head is not None
    output: HeadOutput = head(
        hidden, targets, temperature=temperature, chunk_size=chunk_size, recompute=recompute, entropy=entropy
    )
    return output


def _tiled(
    head: nn.Linear, hidden: Tensor, targets: Tensor, scaled: Callable[[Tensor], Tensor], chunk_size: int
) -> Tensor:
    """Log-probabilities, (N,), from tiles of positions x vocabulary that hold what a chunk holds.

    The logits are those of whole rows; only the log-sum-exp is put together from the tiles'.
    """
    vocabulary = head.weight.shape[0]
    found = []
    for states, ids in zip(torch.split(hidden, _TILE_POSITIONS), torch.split(targets, _TILE_POSITIONS), strict=True):
        width = min(vocabulary, max(1, chunk_size * vocabulary // states.shape[0]))
        log_sum = states.new_full(ids.shape, float("-inf"), dtype=torch.float32)
        own = torch.zeros_like(log_sum)
        for first in range(0, vocabulary, width):
            tile = slice(first, first + width)
            logits = scaled(F.linear(states, head.weight[tile], None if head.bias is None else head.bias[tile]))
            log_sum = torch.logaddexp(log_sum, logits.logsumexp(-1))
            place = ids - first
            inside = (place >= 0) & (place < logits.shape[1])
            own = torch.where(inside, logits.gather(-1, place.clamp(0, logits.shape[1] - 1)[:, None])[:, 0], own)
        found.append(own - log_sum)
    return torch.cat(found)


@torch.no_grad()
def _entropy(logits: Tensor, log_sum: Tensor) -> Tensor:
    """-Σ p log p in nats, (N,)."""
    logprobs = logits - log_sum[:, None]
    return -(logprobs.exp() * logprobs).sum(-1)
