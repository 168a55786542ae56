"""A tiny model in several versions, and what plain transformers gives for requests under each of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import transformers
from grpo_scoring.groups import Group

VOCABULARY, POSITIONS = 320, 256


def save_versions(folder: Path, count: int) -> dict[str, Path]:
    """Writes ``base`` and ``step-1`` … ``step-<count>`` below ``folder``; returns their folders."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=POSITIONS,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
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


@torch.no_grad()
def expected_logprobs(path: Path, requests: list[list[Group]]) -> list[np.ndarray]:
    """Full logits of every row, log-softmax in fp32: one flat array per request."""
    torch.set_num_threads(1)  # rows this small only wait for each other's threads
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return [
        np.concatenate([_row(model, group, ids) for group in groups for ids in group.completions])
        for groups in requests
    ]


def _row(model: torch.nn.Module, group: Group, completion: np.ndarray) -> np.ndarray:
    row = torch.from_numpy(np.concatenate([group.prompt, completion]).astype(np.int64))
    logprobs = model(row[None]).logits[0].float().log_softmax(-1)
    return logprobs[:-1].gather(1, row[1:, None])[len(group.prompt) - 1 :, 0].numpy()
