"""TRL's flags, and recipes in YAML, → a job: how the trainer runs under plain torchrun, Slurm or on a laptop."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from grpo_api.v1alpha1 import RewardFunction
from pydantic.alias_generators import to_camel, to_snake
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from grpo_trainer.config import Job, parse_spec
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.flag_table import Flag, flags, read_value
from grpo_trainer.ranks import Ranks
from grpo_trainer.rewards.registry import split_name

SPECIAL: dict[str, str] = {
    "config": "YAML file of these flags (`learning_rate: 1e-6`), or a GRPOJob manifest; flags given here win.",
    "output_dir": "Directory of checkpoints, metrics and the final model.",
    "run_name": "Name of the run. (default: grpo)",
    "reward_funcs": "One or more reward functions: built in (accuracy, format), module:function, or a dotted path.",
    "reward_weights": "One factor for each of reward_funcs. (default: 1.0 each)",
    "reward_timeout": "Seconds one call of a reward function may take. (default: 60.0)",
    "reward_on_error": "fail, or zero: what an exception or time-out of a reward function does. (default: fail)",
    "deepspeed": "DeepSpeed configuration (JSON file) merged over the trainer's own; values of auto are left out.",
    "generation_batch_size": "Completions per generation over all ranks, instead of steps_per_generation.",
    "bf16": "Train in bfloat16: the same as --dtype bfloat16.",
    "fp16": "Train in float16: the same as --dtype float16.",
    "use_vllm": "Generate with vLLM: not supported in this version.",
    "sync_ref_model": "Replace the reference during training; its server needs --versions-root.",
}
"""Flags that set something else than one field of the spec."""

_LISTS = ("reward_funcs", "reward_weights")
_SWITCHES = ("bf16", "fp16", "use_vllm", "sync_ref_model")
_SYNC = ("ref_model_sync_steps", "ref_model_mixup_alpha")
"""What has an effect only with sync_ref_model."""
_TRL_REWARDS = {"accuracy_reward": "accuracy"}
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")

EPILOG = """\
Without Kubernetes, for example:
  torchrun --nproc-per-node 2 -m grpo_trainer.main --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct \\
    --dataset_name data.jsonl --reward_funcs accuracy --ref_model_url http://localhost:8000 --output_dir runs/first

Names and defaults are TRL's, but beta is 0.04: start a reference server (grpo-refserver), or give --beta 0."""


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Job:
    """Read flags (and the file that `--config` names) into a job.

    The number of ranks is what torchrun has started (`environ`). `--help` prints all flags and exits with 0.

    Raises:
        ConfigurationError: naming the flag: unknown (with the nearest one that is known), twice, not a valid value.
    """
    table = flags()
    given = _read_argv(argv, table)
    recipe, manifest = _read_config(given.pop("config", None), table)
    values = recipe | given
    spec = _nested(manifest.get("spec", {}))
    for name, value in values.items():
        if name in table and value is not None:
            _put(spec, table[name].wire_path, table[name].read(_plain(table[name], value)))
    _apply_special(spec, values)
    reference_url = _apply_sync(spec, values, manifest, table)
    ranks = Ranks.of(environ)
    _put(spec, ("trainer", "processesPerPod"), ranks.local_world_size)
    _put(spec, ("trainer", "replicas"), max(1, ranks.world_size // ranks.local_world_size))
    _apply_generation_batch(spec, values, ranks.world_size)
    _require(spec, values)
    try:
        parsed = parse_spec(spec)
    except ConfigurationError as error:
        raise _in_flags(error, table) from error
    name = values.get("run_name") or manifest.get("metadata", {}).get("name") or "grpo"
    output = values.get("output_dir")
    return Job(str(name), parsed, reference_url or parsed.reference.url, None if output is None else str(output))


def make_parser() -> argparse.ArgumentParser:
    """The parser, whose help lists every flag with its default."""
    parser = _Parser(
        prog="python -m grpo_trainer.main",
        usage="%(prog)s [--config RECIPE] [--FLAG VALUE ...]",
        description="Train a language model with GRPO on DeepSpeed. Flags have TRL's names.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    run = parser.add_argument_group("run")
    for name, text in SPECIAL.items():
        if name in _LISTS:
            run.add_argument(*_spellings(name), dest=name, nargs="+", metavar="VALUE", help=text)
        elif name in _SWITCHES:
            run.add_argument(*_spellings(name), dest=name, nargs="?", const="true", metavar="BOOL", help=text)
        else:
            run.add_argument(*_spellings(name), dest=name, metavar="VALUE", help=text)
    groups: dict[str, Any] = {}
    for flag in flags().values():
        group = groups.setdefault(flag.group, None) or parser.add_argument_group(flag.group)
        groups[flag.group] = group
        _add(group, flag)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigurationError("flags", message)


def _add(group: Any, flag: Flag) -> None:
    text = " ".join((flag.field.description or "").split()).replace("%", "%%")
    if flag.field.is_required():
        text += " (required)"
    elif flag.default is not None:
        text += f" (default: {str(flag.default).lower() if flag.is_bool else flag.default})"
    if flag.is_bool:
        names = _spellings(flag.name)
        group.add_argument(*names, dest=flag.name, nargs="?", const="true", metavar="BOOL", help=text)
        if flag.default is True:
            group.add_argument(
                *_spellings(f"no_{flag.name}"), dest=flag.name, action="store_const", const="false",
                help=f"the same as --{flag.name} false",
            )  # fmt: skip
    else:
        metavar = "|".join(flag.choices) or "VALUE"
        group.add_argument(*_spellings(flag.name), dest=flag.name, metavar=metavar, help=text)


def _spellings(name: str) -> list[str]:
    dashed = name.replace("_", "-")
    return [f"--{name}"] if dashed == name else [f"--{name}", f"--{dashed}"]


def _read_argv(argv: Sequence[str], table: Mapping[str, Flag]) -> dict[str, Any]:
    known, unknown = make_parser().parse_known_args(list(argv))
    for word in unknown:
        if word.startswith("--"):
            raise _unknown(f"--{word[2:].partition('=')[0].replace('-', '_')}", [*table, *SPECIAL], prefix="--")
        raise ConfigurationError("flags", f"{word!r} does not belong to a flag")
    return vars(known)


def _read_config(path: str | None, table: Mapping[str, Flag]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (flags of a recipe, manifest of a GRPOJob): one of them is empty."""
    if path is None:
        return {}, {}
    try:
        content = YAML(typ="safe", pure=True).load(Path(path).read_text(encoding="utf-8"))  # YAML 1.2: 1e-6 is a number
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigurationError("--config", f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigurationError("--config", f"{path} does not hold names and values")
    if content.get("kind") == "GRPOJob":
        return {}, content
    for name in content:
        if name not in table and (name not in SPECIAL or name == "config"):
            raise _unknown(str(name), [*table, *SPECIAL], prefix="", where=f"{path}: ")
    return content, {}


def _unknown(name: str, known: Sequence[str], *, prefix: str, where: str = "") -> ConfigurationError:
    near = difflib.get_close_matches(name.removeprefix("--"), known, n=1, cutoff=0.6)
    hint = f"did you mean {prefix}{near[0]}?" if near else "--help lists those that are"
    return ConfigurationError(f"{where}{name}", f"is not a flag of this trainer: {hint}")


def _plain(flag: Flag, value: Any) -> Any:
    """A value as the spec takes it: lists of one word, TRL's other spellings."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]  # report_to: [tensorboard]
    word = str(value).lower()
    if flag.name == "scale_rewards":
        return {"true": "group", "false": "none"}.get(word, value)
    if flag.name == "ds3_gather_for_generation" and word == "auto":
        return None
    return value


def _apply_special(spec: dict[str, Any], values: Mapping[str, Any]) -> None:
    if values.get("seed") is not None and values.get("data_seed") is None:
        _put(spec, ("dataset", "seed"), spec["optimization"]["seed"])  # TRL's one seed does both
    for name, dtype in (("bf16", "bfloat16"), ("fp16", "float16")):
        if _switch(values, name):
            if values.get("dtype", dtype) not in (dtype, "auto"):
                raise ConfigurationError(f"--{name}", f"contradicts --dtype {values['dtype']}: give one of them")
            _put(spec, ("model", "dtype"), dtype)
    if _switch(values, "use_vllm"):
        _put(spec, ("generation", "engine"), "vllm")
    if values.get("deepspeed") is not None:
        _apply_deepspeed(spec, values["deepspeed"], explicit_stage=values.get("zero_stage"))
    if values.get("reward_funcs") is not None:
        _put(spec, ("rewards", "functions"), _reward_functions(values))


def _apply_sync(
    spec: dict[str, Any], values: Mapping[str, Any], manifest: Mapping[str, Any], table: Mapping[str, Flag]
) -> str | None:
    """Return the reference's URL where it is to be replaced: not an external one then, but started for this run."""
    reference = spec.get("reference", {})
    if values.get("sync_ref_model") is None:
        wanted = "sync" in manifest.get("spec", {}).get("reference", {})
    else:
        wanted = _switch(values, "sync_ref_model")
    if not wanted:
        sync = reference.pop("sync", {})
        for flag in (table[name] for name in _SYNC):
            if sync.get(flag.wire_path[-1], flag.default) != flag.default:  # a dumped recipe names every default
                raise ConfigurationError(f"--{flag.name}", "has no effect without --sync_ref_model true: give that too")
        return None
    _put(spec, ("reference", "sync"), reference.get("sync", {}))
    return None if values.get("ref_model_url") is None else str(spec["reference"].pop("url"))


def _apply_deepspeed(spec: dict[str, Any], source: Any, *, explicit_stage: Any) -> None:
    if not isinstance(source, dict):
        try:
            source = json.loads(Path(source).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError("--deepspeed", f"{source} cannot be read as JSON: {error}") from error
    config = _nested(source)
    stage = config.get("zero_optimization", {}).pop("stage", None)
    if stage is not None and explicit_stage is None:
        _put(spec, ("trainer", "deepspeed", "zeroStage"), stage)
    _put(spec, ("trainer", "deepspeed", "config"), config)


def _reward_functions(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = _as_list(values["reward_funcs"])
    weights = _as_list(values.get("reward_weights") or [1.0] * len(names))
    if len(weights) != len(names):
        raise ConfigurationError("--reward_weights", f"{len(weights)} weights for {len(names)} reward functions")
    fields = RewardFunction.model_fields
    common = {
        to_camel(field): read_value(f"--{name}", fields[field], values[name])
        for name, field in (("reward_timeout", "timeout_seconds"), ("reward_on_error", "on_error"))
        if values.get(name) is not None
    }
    factors = [read_value("--reward_weights", fields["weight"], weight) for weight in weights]
    return [
        {"function": _reward_name(str(name)), "weight": factor, **common}
        for name, factor in zip(names, factors, strict=True)
    ]


def _reward_name(name: str) -> str:
    name = _TRL_REWARDS.get(name, name)
    if ":" not in name and "." in name:
        name = ":".join(name.rsplit(".", 1))  # TRL's dotted path
    try:
        split_name(name)
    except ValueError as error:
        raise ConfigurationError("--reward_funcs", str(error)) from error
    return name


def _apply_generation_batch(spec: dict[str, Any], values: Mapping[str, Any], world_size: int) -> None:
    size = values.get("generation_batch_size")
    if size is None:
        return
    if values.get("steps_per_generation") is not None:
        raise ConfigurationError("--generation_batch_size", "contradicts --steps_per_generation: give one of them")
    per_device = spec.get("optimization", {}).get("perDeviceTrainBatchSize", 8)
    try:
        steps, rest = divmod(int(size), int(per_device) * world_size)
    except (TypeError, ValueError):
        raise ConfigurationError("--generation_batch_size", f"{size!r} is not a whole number") from None
    if rest or steps < 1:
        raise ConfigurationError(
            "--generation_batch_size",
            f"{size} is not a multiple of per_device_train_batch_size {per_device} × {world_size} ranks",
        )
    _put(spec, ("generation", "stepsPerGeneration"), steps)


def _require(spec: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    needed = {
        "model_name_or_path": spec.get("model", {}).get("name"),
        "dataset_name": spec.get("dataset", {}).get("name"),
        "reward_funcs": spec.get("rewards", {}).get("functions"),
    }
    missing = [f"--{name}" for name, value in needed.items() if not value]
    if missing:
        raise ConfigurationError(", ".join(missing), "must be given (--help explains)")


def _in_flags(error: ConfigurationError, table: Mapping[str, Flag]) -> ConfigurationError:
    """The same error, naming the flag instead of the spec's field."""
    path = tuple(to_snake(part) for part in error.field.split("."))
    for flag in table.values():
        if flag.path == path:
            return ConfigurationError(f"--{flag.name}", str(error).removeprefix(f"{error.field}: "))
    return error


def _switch(values: Mapping[str, Any], name: str) -> bool:
    word = str(values.get(name, "false")).lower()
    if word not in (*_TRUE, *_FALSE, "none"):
        raise ConfigurationError(f"--{name}", f"{values[name]!r} is neither true nor false")
    return word in _TRUE


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _nested(content: Any) -> dict[str, Any]:
    return json.loads(json.dumps(content, default=str)) if content else {}


def _put(spec: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        spec = spec.setdefault(part, {})
    spec[path[-1]] = value
