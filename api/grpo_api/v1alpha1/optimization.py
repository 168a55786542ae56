"""spec.optimization: the loss and the optimizer."""

from typing import Annotated, Literal

from pydantic import Field

from .base import Model, Rule

Unit = Annotated[float, Field(ge=0, lt=1)]


class Optimization(Model):
    """The loss and the optimizer. Names and defaults are TRL 1.16's, but `beta`: the reference is the point here."""

    rules = (
        Rule("self.maxSteps != 0", "optimization.maxSteps 0 would train nothing: give a number, or leave it out"),
        Rule(
            "self.lrSchedulerType != 'constant' || self.warmupSteps == 0",
            "optimization.warmupSteps has no effect with lrSchedulerType constant: use constant_with_warmup",
        ),
    )

    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo"] = "dapo"
    """How per-token terms are averaged (TRL `loss_type`)."""
    beta: Annotated[float, Field(ge=0)] = 0.04
    """Weight of the KL term against the reference; 0: no reference server is run."""
    epsilon: Annotated[float, Field(gt=0)] = 0.2
    """Clip range of the ratio, downwards (and upwards, where epsilonHigh is absent)."""
    epsilon_high: Annotated[float, Field(gt=0)] | None = None
    """Clip range of the ratio upwards."""
    delta: Annotated[float, Field(gt=1)] | None = None
    """Upper bound of the ratio for two-sided clipping (INTELLECT-2); absent: none."""
    num_iterations: Annotated[int, Field(ge=1, le=64)] = 1
    """Times each generation batch is trained on."""
    importance_sampling_level: Literal["token", "sequence"] = "token"
    """Ratio per token, or one per sequence (GSPO)."""
    use_bias_correction_kl: bool = True
    """Multiply the KL term by the ratio (TRL `use_bias_correction_kl`)."""
    mask_truncated_completions: bool = False
    """Leave completions out of the loss that did not end within maxCompletionLength."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-6
    """Peak learning rate of AdamW."""
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear"
    """Course of the learning rate after the warm-up (transformers' names)."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Optimizer steps of linear warm-up."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's weight decay (biases and norms excepted)."""
    adam_beta1: Unit = 0.9
    """AdamW's beta 1."""
    adam_beta2: Unit = 0.999
    """AdamW's beta 2."""
    adam_epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """AdamW's epsilon."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Gradient norm above which gradients are scaled down; 0: never."""
    per_device_train_batch_size: Annotated[int, Field(ge=1, le=65536)] = 8
    """Completions per rank and micro-batch."""
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=4096)] = 1
    """Micro-batches per optimizer step."""
    max_steps: Annotated[int, Field(ge=-1)] = -1
    """Optimizer steps to do; -1: numTrainEpochs decides."""
    num_train_epochs: Annotated[float, Field(gt=0)] = 3.0
    """Passes over the prompts, where maxSteps is -1."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass: less memory, more time."""
    seed: Annotated[int, Field(ge=0)] = 42
    """Seed of sampling and initialization."""
