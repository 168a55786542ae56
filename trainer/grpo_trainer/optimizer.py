"""AdamW and the learning rate's course, as TRL and transformers' Trainer set them up."""

from __future__ import annotations

from typing import Any

import torch
from grpo_api.v1alpha1 import Optimization
from torch import nn
from transformers import get_scheduler
from transformers.trainer_pt_utils import get_parameter_names

NO_DECAY = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
"""Names of parameters without weight decay (transformers 5.24, Trainer.get_decay_parameter_names)."""


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split trainable parameters into those with weight decay and those without (biases and norms)."""
    decayed = set(get_parameter_names(model, [nn.LayerNorm], NO_DECAY))
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for name, p in named if name in decayed], "weight_decay": weight_decay},
        {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(model: nn.Module, optimization: Optimization) -> torch.optim.AdamW:
    """torch's AdamW over the model's parameters."""
    return torch.optim.AdamW(
        parameter_groups(model, optimization.weight_decay),
        lr=optimization.learning_rate,
        betas=(optimization.adam_beta1, optimization.adam_beta2),
        eps=optimization.adam_epsilon,
    )


def make_scheduler(
    optimizer: torch.optim.Optimizer, optimization: Optimization, total_steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """transformers' schedule over `total_steps` optimizer steps."""
    return get_scheduler(  # type: ignore[no-any-return]
        optimization.lr_scheduler_type,
        optimizer,
        num_warmup_steps=optimization.warmup_steps,
        num_training_steps=total_steps,
    )
