"""A tiny model in several versions, and what plain transformers gives for requests under each of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import transformers
from grpo_scoring.groups import Group

from tests.assets.tiny import SIZES, VOCABULARY, full_logit_logprobs, random_model


def save_versions(folder: Path, count: int) -> dict[str, Path]:
    """Writes ``base`` and ``step-1`` … ``step-<count>`` below ``folder``; returns their folders."""
    model = random_model(transformers.LlamaConfig(**SIZES), scale=1.0)
    names = ["base", *(f"step-{number}" for number in range(1, count + 1))]
    folders = {name: folder / ("base" if name == "base" else f"versions/{name}") for name in names}
    for path in folders.values():
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.add_(torch.randn_like(parameter) * 0.06)
        model.save_pretrained(path)
    return folders


def make_requests(count: int, seed: int = 0) -> list[list[Group]]:
    """Ragged requests of a few groups."""
    random = np.random.default_rng(seed)

    def ids(low: int, high: int) -> np.ndarray:
        return random.integers(0, VOCABULARY, random.integers(low, high))

    return [
        [Group.of(ids(5, 60), [ids(1, 24) for _ in range(random.integers(2, 7))]) for _ in range(random.integers(1, 4))]
        for _ in range(count)
    ]


def expected_logprobs(path: Path, requests: list[list[Group]]) -> list[np.ndarray]:
    """What plain transformers gives: one flat fp32 array per request."""
    torch.set_num_threads(1)  # rows this small only wait for each other's threads
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return [np.concatenate(full_logit_logprobs(model, groups)).astype(np.float32) for groups in requests]
