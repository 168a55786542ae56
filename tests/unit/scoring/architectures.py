"""Tiny random models of many families, with log-probabilities of size 10 to 30, so that a wrong one is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers as T
from grpo_scoring.groups import Group

from tests.assets.tiny import SIZES, VOCABULARY, full_logit_logprobs, random_model

WINDOW = 12
"""Shorter than the prompts and than some completions, so that it cuts both."""
COMMON: dict[str, Any] = SIZES | {"num_hidden_layers": 4, "max_position_embeddings": 512}
WIDE = COMMON | {"head_dim": 32}


def _gemma2() -> Any:
    return T.Gemma2Config(
        **WIDE,
        sliding_window=WINDOW,
        query_pre_attn_scalar=32,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=15.0,
    )


def _gemma3() -> Any:
    layers = ["sliding_attention"] * 3 + ["full_attention"]
    return T.Gemma3TextConfig(**WIDE, sliding_window=WINDOW, query_pre_attn_scalar=32, layer_types=layers)


def _qwen3_sliding() -> Any:
    return T.Qwen3Config(**WIDE, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2)


SHARING: dict[str, Callable[[], Any]] = {
    "llama": lambda: T.LlamaConfig(**COMMON),
    "llama-tied": lambda: T.LlamaConfig(**COMMON, tie_word_embeddings=True),
    "llama-multi-head": lambda: T.LlamaConfig(**COMMON | {"num_key_value_heads": 4}),
    "qwen2": lambda: T.Qwen2Config(**COMMON),
    "qwen3": lambda: T.Qwen3Config(**WIDE),
    "qwen3-sliding": _qwen3_sliding,
    "mistral-sliding": lambda: T.MistralConfig(**COMMON, sliding_window=WINDOW),
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "phi3": lambda: T.Phi3Config(**COMMON),
    "granite": lambda: T.GraniteConfig(**COMMON, logits_scaling=3.0, attention_multiplier=0.3, residual_multiplier=0.7),
    "olmo2": lambda: T.Olmo2Config(**COMMON),
    "cohere": lambda: T.CohereConfig(**COMMON, logit_scale=0.3),
    "smollm3": lambda: T.SmolLM3Config(**COMMON),
    # SmolLM2 is a Llama: 9 heads of which 3 have keys, tied, its own rope and norm settings.
    "smollm2": lambda: T.LlamaConfig(
        **COMMON | {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3},
        tie_word_embeddings=True,
        rope_theta=100000,
        rms_norm_eps=1e-5,
    ),
}
"""Families whose prompts are computed once."""

EAGER_ONLY = frozenset({"gemma2"})
"""transformers' sdpa has no soft-cap: it warns and gives other values than the model's own."""

ROWS: dict[str, tuple[Callable[[], Any], str]] = {
    "gpt-oss": (
        lambda: T.GptOssConfig(**WIDE, sliding_window=WINDOW, num_local_experts=2, num_experts_per_tok=1),
        "s_aux",
    ),
    "mamba2": (
        lambda: T.Mamba2Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            num_hidden_layers=2,
            state_size=16,
            num_heads=4,
            head_dim=32,
            n_groups=1,
            chunk_size=16,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
        "",
    ),
    "falcon-h1": (
        lambda: T.FalconH1Config(
            **COMMON, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=16, mamba_chunk_size=16
        ),
        "",
    ),
    "llama4": (
        lambda: T.Llama4TextConfig(
            **WIDE,
            attention_chunk_size=16,
            intermediate_size_mlp=128,
            num_local_experts=2,
            num_experts_per_tok=1,
            interleave_moe_layer_step=2,
        ),
        "chunk",
    ),
}
"""Families that fall back to rows, and a word that the reason must hold."""


SPREAD = 3.5
"""Standard deviation of logits: random tokens then have log-probabilities of about -6 to -20."""


def make(config: Any, *, attention: str = "eager", scale: float = 5.0, spread: float = SPREAD) -> Any:
    """A random fp32 model in eval mode, its head scaled so that logits spread; the same weights each time."""
    config._attn_implementation = attention
    model = random_model(config, scale=scale).requires_grad_(False)
    row = torch.tensor(ids(64, seed=1))[None]
    for _ in range(4):  # once where the head is not tied to the embeddings
        model.get_output_embeddings().weight.mul_(spread / model(input_ids=row, use_cache=False).logits.std())
    return model


def ids(length: int, seed: int) -> list[int]:
    """Random token ids."""
    return np.random.default_rng(seed).integers(3, VOCABULARY, length).tolist()


def groups(sizes: Sequence[tuple[int, Sequence[int]]], seed: int = 3) -> list[Group]:
    """Random groups: for each, the prompt's length and its completions' lengths."""
    return [
        Group.of(ids(prompt, seed + 100 * n), [ids(size, seed + 100 * n + k + 1) for k, size in enumerate(own)])
        for n, (prompt, own) in enumerate(sizes)
    ]


def plain(model: Any, wanted: Sequence[Group], temperature: float = 1.0) -> np.ndarray[Any, Any]:
    """The plain way, flat, (ΣC,)."""
    return np.concatenate([np.zeros(0), *full_logit_logprobs(model, wanted, temperature)])


def difference(scored: Any, truth: Any) -> float:
    """Largest difference, relative to the larger of 1 and the log-probability."""
    return float(np.max(np.abs(scored - truth) / np.maximum(1, np.abs(truth)), initial=0))
