"""Whether a model can be spread over so many devices, by transformers' own tensor-parallel plan."""

from __future__ import annotations

from typing import Any

from grpo_refserver.settings import ConfigurationError

_BY_HEADS = ("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "q_b_proj", "kv_b_proj")
"""Projections that a plan may cut between attention heads."""


def check_plan(config: Any, size: int) -> None:
    """Looks at a model's config before anything is loaded.

    Attention is cut between heads, so their numbers must be divisible by ``size`` (where a family's plan cuts it at
    all). Other sizes need not: the last device's part is shorter then.

    Raises:
        ConfigurationError: names the field of the config, and sizes that would do.
    """
    text = config.get_text_config()
    plan = text.base_model_tp_plan
    flag = f"--tensor-parallel-size {size} (spec.reference.tensorParallelSize)"
    if not plan:
        raise ConfigurationError(
            f"{flag}: transformers has no tensor-parallel plan (base_model_tp_plan) for model_type {text.model_type}: "
            "use 1, or a reference engine that has one"
        )
    if any(style == "colwise" and name.rsplit(".", 1)[-1] in _BY_HEADS for name, style in plan.items()):
        heads = {name: _heads(text, name) for name in ("num_attention_heads", "num_key_value_heads")}
        for name, numbers in heads.items():
            if any(number % size for number in numbers):
                every = [number for several in heads.values() for number in several]
                able = [str(n) for n in range(1, max(every) + 1) if not any(number % n for number in every)]
                raise ConfigurationError(
                    f"{flag}: {name} of the model is {max(numbers)}, which is not divisible by {size}: "
                    f"use {' or '.join(able)}"
                )
    for name in ("vocab_size", "hidden_size", "intermediate_size"):
        number = getattr(text, name, None)
        if isinstance(number, int) and -(-number // size) * (size - 1) >= number:
            raise ConfigurationError(f"{flag}: {name} of the model is {number}, too few to give each device a part")


def _heads(text: Any, name: str) -> list[int]:
    """One number, or one per layer; none where the family has no such field."""
    value = getattr(text, name, None)
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
