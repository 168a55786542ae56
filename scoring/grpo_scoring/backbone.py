"""The part of a causal language model below its head."""

from __future__ import annotations

from typing import Any

from torch import nn


def backbone(model: Any) -> nn.Module:
    """The part below the head (below an adapter's wrapper, too): ids to hidden states. Raises ValueError."""
    if hasattr(model, "get_base_model"):  # peft
        model = model.get_base_model()
    below: nn.Module = model.base_model
    if below is model:  # a text model cut out of a larger one has that one's prefix (Llama 4)
        below = getattr(model, "model", model)
    if below is model:
        raise ValueError(f"{type(model).__name__} has no backbone below its head: a causal language model is needed")
    return below
