from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from grpo_api.v1alpha1 import Spec
from grpo_trainer.config import Job
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.flag_table import flags
from grpo_trainer.flags import SPECIAL, make_parser, parse

NEEDED = ["--model_name_or_path", "m", "--dataset_name", "d.jsonl", "--reward_funcs", "accuracy"]
TWO_BY_TWO = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


def spec(*argv: str, environ: dict[str, str] | None = None) -> Spec:
    return parse([*NEEDED, *argv], environ or {}).spec


def test_trls_names_set_the_specs_fields() -> None:
    job = parse(
        [
            *("--model_name_or_path", "org/model", "--model_revision", "v1", "--dtype", "bfloat16"),
            *("--dataset_name", "org/data", "--dataset_config", "main", "--dataset_train_split", "train[:10]"),
            *("--reward_funcs", "accuracy", "mine:score", "--reward_weights", "1", "-0.5"),
            *("--ref_model_url", "http://ref:8000", "--ds3_gather_for_generation", "False"),
            *("--per_device_train_batch_size", "4", "--gradient_accumulation_steps=2", "--num-generations", "8"),
            *("--learning_rate", "1e-5", "--beta", "0.01", "--loss_type", "dr_grpo", "--epsilon_high", "0.28"),
            *("--max_steps", "-1", "--max_completion_length", "64", "--save_steps", "7", "--logging_steps", "3"),
            *("--output_dir", "runs/x", "--run_name", "x", "--seed", "3", "--no_shuffle_dataset", "--log_completions"),
        ],
        TWO_BY_TWO,
    )
    assert (job.name, job.output_dir, job.reference_url) == ("x", "runs/x", "http://ref:8000")
    assert job.spec.model_dump(exclude_defaults=True) == {
        "model": {"name": "org/model", "revision": "v1", "dtype": "bfloat16"},
        "dataset": {"name": "org/data", "config": "main", "split": "train[:10]", "shuffle": False, "seed": 3},
        "rewards": {"functions": [{"function": "accuracy"}, {"function": "mine:score", "weight": -0.5}]},
        "reference": {"url": "http://ref:8000"},
        "generation": {"max_completion_length": 64, "ds3_gather_for_generation": False},
        "optimization": {
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 2,
            "learning_rate": 1e-5,
            "beta": 0.01,
            "loss_type": "dr_grpo",
            "epsilon_high": 0.28,
            "seed": 3,
        },
        "checkpoint": {"every_steps": 7},
        "logging": {"every_steps": 3, "completions": True},
        "trainer": {"replicas": 2, "processes_per_pod": 2},
    }


def test_defaults_are_the_specs() -> None:
    job = parse(NEEDED, {})
    assert job == Job("grpo", job.spec, None, None)
    assert job.spec.model_dump(exclude_defaults=True) == {
        "model": {"name": "m"},
        "dataset": {"name": "d.jsonl"},
        "rewards": {"functions": [{"function": "accuracy"}]},
    }


@pytest.mark.parametrize(("words", "gather"), [([], True), (["true"], True), (["False"], False), (["auto"], None)])
def test_gather_flag(words: list[str], gather: bool | None) -> None:
    assert spec("--ds3_gather_for_generation", *words).generation.ds3_gather_for_generation is gather
    assert spec().generation.ds3_gather_for_generation is None


def test_every_flag_of_trl_that_is_taken_over_exists_there() -> None:
    """The table promises TRL's names: all but ours below must be fields of TRL's own dataclasses."""
    import dataclasses

    from trl import GRPOConfig, ModelConfig, ScriptArguments
    from trl.scripts.grpo import GRPOScriptArguments

    theirs = {
        field.name
        for config in (GRPOConfig, ModelConfig, ScriptArguments, GRPOScriptArguments)
        for field in dataclasses.fields(config)
    }
    ours = {
        *("prompt_column", "system_prompt", "max_prompt_length", "reward_timeout", "reward_on_error"),
        *(
            "ref_model_url",
            "ref_model_engine",
            "ref_model_request_timeout",
            "zero_stage",
            "offload_optimizer",
            "offload_param",
        ),
        *("rendezvous_timeout", "save_final_model", "config"),
    }
    assert {*flags(), *SPECIAL} - theirs == ours


def test_defaults_equal_trls() -> None:
    """What differs is meant to, and said in the spec's documentation."""
    import dataclasses

    from trl import GRPOConfig

    theirs = {field.name: field.default for field in dataclasses.fields(GRPOConfig)}
    different = {
        name
        for name, flag in flags().items()
        if name in theirs and not flag.field.is_required() and flag.default != theirs[name]
    }
    assert different == {
        "beta",  # the reference is the point here
        "ds3_gather_for_generation",  # absent: by the free memory
        "data_seed",  # the order's seed is a field of its own
        "ddp_timeout",
        "save_steps",
        "save_total_limit",
        "logging_steps",
        "report_to",
    }


def test_a_reference_that_is_replaced_is_not_an_external_one() -> None:
    url = ("--ref_model_url", "http://ref:8000")
    job = parse([*NEEDED, *url, "--sync_ref_model", "--ref_model_sync_steps", "100"], {})
    assert job.reference_url == "http://ref:8000"
    assert job.spec.reference.url is None
    assert job.spec.reference.sync is not None
    assert (job.spec.reference.sync.every_steps, job.spec.reference.sync.mixup_alpha) == (100, 0.6)
    plain = parse([*NEEDED, *url, "--sync_ref_model", "false"], {})
    assert (plain.reference_url, plain.spec.reference.sync) == ("http://ref:8000", None)
    assert plain.spec.reference.url == "http://ref:8000"
    assert spec("--ref_model_sync_steps", "512").reference.sync is None, "a dumped recipe names every default"


def test_seed_is_also_the_orders_unless_that_is_given() -> None:
    assert spec("--seed", "5").dataset.seed == 5
    assert spec("--seed", "5", "--data_seed", "6").dataset.seed == 6
    assert spec("--data_seed", "6").optimization.seed == 42


def test_precision_flags() -> None:
    assert spec("--bf16").model.dtype == "bfloat16"
    assert spec("--bf16", "False").model.dtype == "auto"
    assert spec("--fp16", "true").model.dtype == "float16"
    with pytest.raises(ConfigurationError, match="--bf16: contradicts --dtype float32"):
        spec("--bf16", "--dtype", "float32")
    with pytest.raises(ConfigurationError, match="--bf16: 'maybe' is neither true nor false"):
        spec("--bf16", "maybe")


@pytest.mark.parametrize(("word", "value"), [("True", "group"), ("false", "none"), ("batch", "batch")])
def test_scale_rewards_in_all_of_trls_spellings(word: str, value: str) -> None:
    assert spec("--scale_rewards", word).rewards.scale_rewards == value


def test_reward_functions() -> None:
    functions = parse(
        [
            *("--model_name_or_path", "m", "--dataset_name", "d", "--reward_timeout", "5", "--reward_on_error", "zero"),
            *("--reward_funcs", "accuracy_reward", "pkg.module.f"),
        ],
        {},
    ).spec.rewards.functions
    assert [function.function for function in functions] == ["accuracy", "pkg.module:f"]
    assert [(function.timeout_seconds, function.on_error) for function in functions] == [(5.0, "zero")] * 2


def test_deepspeed_file(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2, "overlap_comm": True}, "bf16": {"enabled": "auto"}}))
    deepspeed = spec("--deepspeed", str(path)).trainer.deepspeed
    assert deepspeed.zero_stage == 2
    assert deepspeed.config == {"zero_optimization": {"overlap_comm": True}, "bf16": {"enabled": "auto"}}
    assert spec("--deepspeed", str(path), "--zero_stage", "1").trainer.deepspeed.zero_stage == 1
    with pytest.raises(ConfigurationError, match=r"--deepspeed: .*none.json cannot be read as JSON"):
        spec("--deepspeed", str(tmp_path / "none.json"))


def test_generation_batch_size() -> None:
    assert spec("--generation_batch_size", "64", environ=TWO_BY_TWO).generation.steps_per_generation == 2
    with pytest.raises(ConfigurationError, match=r"--generation_batch_size: 60 is not a multiple of .* 8 × 4 ranks"):
        spec("--generation_batch_size", "60", environ=TWO_BY_TWO)
    with pytest.raises(ConfigurationError, match="contradicts --steps_per_generation"):
        spec("--generation_batch_size", "64", "--steps_per_generation", "2")
    with pytest.raises(ConfigurationError, match="'x' is not a whole number"):
        spec("--generation_batch_size", "x")


RECIPE = """\
# a recipe as for TRL
model_name_or_path: org/model
dataset_name: org/data
reward_funcs:
- accuracy
- mine:score
reward_weights: [1.0, 2]
learning_rate: 1e-6
report_to:
- tensorboard
bf16: true
shuffle_dataset: no
lr_scheduler_type: cosine
epsilon_high: null
"""


def test_recipe_and_flags_over_it(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.replace("shuffle_dataset: no", "shuffle_dataset: false"))
    result = parse(["--config", str(path), "--learning_rate", "2e-6", "--reward_funcs", "a:b", "c:d"], {}).spec
    assert result.optimization.learning_rate == 2e-6
    assert [(f.function, f.weight) for f in result.rewards.functions] == [("a:b", 1.0), ("c:d", 2.0)]
    assert (result.model.dtype, result.dataset.shuffle, result.logging.report_to) == ("bfloat16", False, "tensorboard")
    assert result.optimization.lr_scheduler_type == "cosine"
    assert result.optimization.epsilon_high is None
    assert parse(["--config", str(path)], {}).spec.optimization.learning_rate == 1e-6


def test_manifest_of_a_job_and_flags_over_it(tmp_path: Path) -> None:
    manifest = {
        "apiVersion": "grpo.dev/v1alpha1",
        "kind": "GRPOJob",
        "metadata": {"name": "my-job"},
        "spec": {
            "model": {"name": "m"},
            "dataset": {"name": "d", "seed": 4},
            "rewards": {"functions": [{"function": "format", "weight": 2}]},
            "optimization": {"learningRate": 1e-4, "lossType": "grpo"},
            "trainer": {"replicas": 8, "resources": {"limits": {"cpu": 4}}},
        },
    }
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(manifest))  # JSON is YAML
    job = parse(["--config", str(path), "--learning_rate", "1e-3"], TWO_BY_TWO)
    assert job.name == "my-job"
    assert job.spec.optimization.learning_rate == 1e-3
    assert job.spec.optimization.loss_type == "grpo"
    assert job.spec.dataset.seed == 4
    assert job.spec.rewards.functions[0].function == "format"
    assert job.spec.world_size == 4


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--learning_rte", "1"], "--learning_rte: is not a flag of this trainer: did you mean --learning_rate?"),
        (["--learning-rte=1"], "--learning_rte: is not a flag of this trainer: did you mean --learning_rate?"),
        (["--learn", "1"], "--learn: is not a flag"),
        (["--push_to_hub"], "--push_to_hub: is not a flag of this trainer"),
        (["--seed", "1", "stray"], "flags: 'stray' does not belong to a flag"),
        (["--learning_rate"], "flags: argument --learning_rate/--learning-rate: expected one argument"),
        (["--learning_rate", "fast"], "--learning_rate: Input should be a valid number"),
        (["--loss_type", "ppo"], "--loss_type: Input should be 'grpo', 'bnpo', 'dr_grpo' or 'dapo'"),
        (["--reward_weights", "much"], "--reward_weights: Input should be a valid number"),
        (["--ref_model_engine", "tgi"], "--ref_model_engine: Input should be 'transformers', 'vllm' or 'sglang'"),
        (["--reward_on_error", "skip"], "--reward_on_error: Input should be 'fail' or 'zero'"),
        (["--num_iterations", "1.5"], "--num_iterations: Input should be a valid integer"),
        (["--num_iterations", "0"], "--num_iterations: Input should be greater than or equal to 1"),
        (["--ref_model_url", "ref:8000"], "--ref_model_url: String should match pattern"),
        (["--ref_model_sync_steps", "5"], "--ref_model_sync_steps: has no effect without --sync_ref_model true"),
        (["--sync_ref_model", "--ref_model_mixup_alpha", "2"], "--ref_model_mixup_alpha: Input should be less than or"),
        (["--reward_weights", "1", "2"], "--reward_weights: 2 weights for 1 reward functions"),
        (["--reward_funcs", "nonsense"], "--reward_funcs: 'nonsense' is neither built in"),
        (["--config", "nowhere.yaml"], "--config: nowhere.yaml cannot be read"),
    ],
)
def test_errors_name_the_flag(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        spec(*argv)
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 64


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--num_generations", "3"], "must be divisible by generation.numGenerations"),
        (["--num_generations", "1"], "generation.numGenerations must be at least 2"),
        (["--use_vllm"], "generation.engine vllm is not supported in this version: use engine transformers"),
        (["--report_to", "wandb"], "logging.reportTo wandb is not supported in this version"),
        (["--zero_stage", "2", "--ds3_gather_for_generation"], "has no effect below ZeRO stage 3"),
        (["--beta", "0", "--sync_ref_model"], "reference.sync has no effect with optimization.beta 0"),
        (["--beta", "0", "--ref_model_url", "http://ref:8000"], "reference.url has no effect with optimization.beta 0"),
    ],
)
def test_the_rules_of_the_api_hold_without_an_api_server(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        spec(*argv)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rte: 1", "learning_rte: is not a flag of this trainer: did you mean learning_rate?"),
        ("- a\n- b", "does not hold names and values"),
        ("a: [", "cannot be read"),
        ("config: other.yaml", "config: is not a flag"),
    ],
)
def test_errors_in_a_recipe_name_it(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        parse(["--config", str(path)], {})
    assert message in str(caught.value)
    assert "recipe.yaml" in str(caught.value)


def test_what_must_be_given() -> None:
    with pytest.raises(ConfigurationError, match=r"^--model_name_or_path, --reward_funcs: must be given"):
        parse(["--dataset_name", "d"], {})


def test_help_lists_every_flag_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(["--help"], {})
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(f"--{name}" in text for name in [*flags(), *SPECIAL])
    joined = " ".join(text.split())
    for part in ("Peak learning rate of AdamW. (default: 1e-06)", "(default: dapo)", "(default: true)", "(required)"):
        assert part in joined


def test_each_flag_has_words_of_explanation() -> None:
    for action in make_parser()._actions:
        assert action.help, action.option_strings


def values() -> list[tuple[str, Any]]:
    return [(name, flag.default) for name, flag in flags().items() if flag.default is not None]


@pytest.mark.parametrize(("name", "default"), values())
def test_each_default_is_taken_as_a_value(name: str, default: Any) -> None:
    group = ["--sync_ref_model"] if flags()[name].path[:2] == ("reference", "sync") else []
    result = spec(f"--{name}", str(default), *group).model_dump()
    for part in flags()[name].path:
        result = result[part]
    assert result == default
