"""The spec's DeepSpeed configuration, and what users may merge over it."""

from __future__ import annotations

from typing import Any

import pytest
from grpo_trainer.deepspeed_config import OWNED, deepspeed_config
from grpo_trainer.errors import ConfigurationError

from tests.unit.trainer.specs import spec


def make(dtype: str = "float32", gpu: bool = False, **groups: Any) -> dict[str, Any]:
    return deepspeed_config(spec(**groups), dtype=dtype, hidden_size=64, gpu=gpu)


def test_batches_come_from_the_spec() -> None:
    config = make(
        optimization={"perDeviceTrainBatchSize": 4, "gradientAccumulationSteps": 3, "maxGradNorm": 0.5},
        trainer={"replicas": 2, "processesPerPod": 2},
    )
    assert config["train_micro_batch_size_per_gpu"] == 4
    assert config["gradient_accumulation_steps"] == 3
    assert config["train_batch_size"] == 4 * 3 * 4
    assert config["gradient_clipping"] == 0.5


def test_no_clipping_is_said_since_deepspeeds_own_default_clips() -> None:
    assert make(optimization={"maxGradNorm": 0.0})["gradient_clipping"] == 0.0


@pytest.mark.parametrize(("dtype", "on"), [("float32", None), ("bfloat16", "bf16"), ("float16", "fp16")])
def test_precision_follows_the_weights(dtype: str, on: str | None) -> None:
    config = make(dtype)
    assert [name for name in ("bf16", "fp16") if config[name]["enabled"]] == ([on] if on else [])


def test_stage_3_buckets_follow_the_hidden_size() -> None:
    zero = make()["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["reduce_bucket_size"] == 64 * 64
    assert zero["stage3_param_persistence_threshold"] == 640
    assert zero["overlap_comm"] is False
    assert make(gpu=True)["zero_optimization"]["overlap_comm"] is True


def test_below_stage_3_nothing_of_it_is_set() -> None:
    zero = make(trainer={"deepspeed": {"zeroStage": 2}})["zero_optimization"]
    assert not [name for name in zero if name.startswith("stage3")]


def test_offloading() -> None:
    zero = make(gpu=True, trainer={"deepspeed": {"offloadOptimizer": "cpu", "offloadParam": "cpu"}})[
        "zero_optimization"
    ]
    assert zero["offload_optimizer"] == zero["offload_param"] == {"device": "cpu", "pin_memory": True}


def test_the_users_configuration_is_merged_over_ours() -> None:
    theirs = {
        "zero_optimization": {"stage3_prefetch_bucket_size": 0, "reduce_bucket_size": "auto"},
        "train_batch_size": "auto",
        "optimizer": {"type": "auto", "params": {"lr": "auto"}},
        "activation_checkpointing": {},
    }
    config = make(trainer={"deepspeed": {"config": theirs}})
    assert config["zero_optimization"]["stage3_prefetch_bucket_size"] == 0
    assert config["zero_optimization"]["reduce_bucket_size"] == 64 * 64
    assert config["zero_optimization"]["stage"] == 3
    assert config["train_batch_size"] == 8
    assert config["activation_checkpointing"] == {}
    assert "optimizer" not in config


@pytest.mark.parametrize("path", OWNED)
def test_what_a_field_sets_is_refused_here(path: str) -> None:
    theirs: Any = 1
    for key in reversed(path.split(".")):
        theirs = {key: theirs}
    with pytest.raises(ConfigurationError, match=rf"^trainer\.deepspeed\.config\.{path}: is set by ") as error:
        make(trainer={"deepspeed": {"config": theirs}})
    assert OWNED[path] in str(error.value)
