"""Tiny random models of any family, and the plain way to score with them: what faster ways are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import transformers
from grpo_scoring.groups import Group
from numpy.typing import NDArray

VOCABULARY = 320
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Of a config, as keyword arguments."""


def random_model(config: Any, *, seed: int = 0, scale: float = 4.0) -> Any:
    """A random fp32 model in eval mode; its matrices are scaled up, so that a wrong log-probability is seen."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model


@torch.no_grad()
def full_logit_logprobs(model: Any, groups: Iterable[Group], temperature: float = 1.0) -> list[NDArray[np.float64]]:
    """One array per completion: transformers' own forward, one row at a time, all logits; log-softmax in fp64."""
    answers = []
    for group in groups:
        for completion in group.completions:
            row = torch.from_numpy(np.concatenate([group.prompt, completion]).astype(np.int64))
            logits = model(input_ids=row[None], use_cache=False).logits[0].double() / temperature
            logprobs = logits.log_softmax(-1)[:-1].gather(1, row[1:, None])[:, 0]
            answers.append(logprobs[group.prompt.size - 1 :].numpy())
    return answers
