"""The spec → DeepSpeed's configuration."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from grpo_api.v1alpha1 import Spec

from grpo_trainer.errors import ConfigurationError

OWNED = {
    "train_batch_size": "optimization.perDeviceTrainBatchSize",
    "train_micro_batch_size_per_gpu": "optimization.perDeviceTrainBatchSize",
    "gradient_accumulation_steps": "optimization.gradientAccumulationSteps",
    "gradient_clipping": "optimization.maxGradNorm",
    "optimizer": "optimization.learningRate and its neighbours",
    "scheduler": "optimization.lrSchedulerType",
    "zero_optimization.stage": "trainer.deepspeed.zeroStage",
    "bf16.enabled": "model.dtype",
    "fp16.enabled": "model.dtype",
}
"""Keys that trainer.deepspeed.config may not set, and the field that does."""


def deepspeed_config(spec: Spec, *, dtype: str, hidden_size: int, gpu: bool) -> dict[str, Any]:
    """Return the configuration for `deepspeed.initialize`.

    The user's trainer.deepspeed.config is merged over ours; values of "auto" (transformers' convention: filled in by
    the trainer) count as absent.

    Args:
        spec: the job.
        dtype: of the policy's weights: float32, bfloat16 or float16.
        hidden_size: of the policy; buckets are sized by it, as in transformers' DeepSpeed integration.
        gpu: whether ranks run on GPUs.

    Raises:
        ConfigurationError: the user's configuration sets what a field of the spec sets.
    """
    user = _without_auto(spec.trainer.deepspeed.config or {})
    _refuse_owned(user)
    optimization = spec.optimization
    return _merge(
        {
            "train_batch_size": optimization.per_device_train_batch_size
            * optimization.gradient_accumulation_steps
            * spec.world_size,
            "train_micro_batch_size_per_gpu": optimization.per_device_train_batch_size,
            "gradient_accumulation_steps": optimization.gradient_accumulation_steps,
            "gradient_clipping": optimization.max_grad_norm,
            "bf16": {"enabled": dtype == "bfloat16"},
            "fp16": {"enabled": dtype == "float16"},
            "steps_per_print": 2**31 - 1,
            "wall_clock_breakdown": False,
            # torch's AdamW also works on offloaded state; DeepSpeed's own would need a compiler in the image.
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": _zero(spec, hidden_size, gpu),
        },
        user,
    )


def _zero(spec: Spec, hidden_size: int, gpu: bool) -> dict[str, Any]:
    deepspeed = spec.trainer.deepspeed
    zero: dict[str, Any] = {
        "stage": deepspeed.zero_stage,
        "overlap_comm": gpu,
        "contiguous_gradients": True,
        "reduce_bucket_size": hidden_size * hidden_size,
    }
    if deepspeed.zero_stage > 0 and deepspeed.offload_optimizer != "none":
        zero["offload_optimizer"] = {"device": deepspeed.offload_optimizer, "pin_memory": gpu}
    if deepspeed.zero_stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": int(0.9 * hidden_size * hidden_size),
            "stage3_param_persistence_threshold": 10 * hidden_size,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
        if deepspeed.offload_param != "none":
            zero["offload_param"] = {"device": deepspeed.offload_param, "pin_memory": gpu}
    return zero


def _refuse_owned(user: dict[str, Any]) -> None:
    for path, owner in OWNED.items():
        level: Any = user
        for key in path.split("."):
            level = level.get(key) if isinstance(level, dict) else None
        if level is not None:
            raise ConfigurationError(f"trainer.deepspeed.config.{path}", f"is set by {owner}: remove it here")


def _without_auto(config: dict[str, Any]) -> dict[str, Any]:
    """Drop "auto" values, and sections that hold nothing else."""
    kept: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            inner = _without_auto(value)
            if inner or not value:
                kept[key] = inner
        elif value != "auto":
            kept[key] = value
    return kept


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = deepcopy(base)
    for key, value in over.items():
        mine = merged.get(key)
        merged[key] = _merge(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else deepcopy(value)
    return merged
