"""`python -m grpo_trainer.evaluate`: how well a model does on a dataset, judged by reward functions.

One process. Prompts are prepared as in training (system prompt, chat template, length limit), completions are decoded
and judged as there: greedily, and sampled at the given temperature.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import disable_progress_bars
from grpo_api.v1alpha1 import Dataset as DatasetSpec
from grpo_api.v1alpha1 import RewardFunction
from grpo_scoring.outages import is_outage
from pydantic import ValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from grpo_trainer.dataset import PromptDataset, load_prompts
from grpo_trainer.errors import ConfigurationError, PermanentError
from grpo_trainer.evaluation import Evaluator, Judged, Result
from grpo_trainer.interruptions import HubUnreachable
from grpo_trainer.prompts import Prompt
from grpo_trainer.rewards.runner import RewardRunner

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """An evaluation; `greedy` and `sampled` are the means of the first reward function."""

    model: str
    dataset: str
    split: str
    prompts: int
    too_long: int
    """Prompts that were dropped because they are longer than the limit."""
    greedy: float | None
    sampled: float | None
    num_generations: int
    """Sampled completions per prompt."""
    temperature: float
    seed: int
    seconds: float
    results: dict[str, Result] = field(default_factory=dict)
    """`greedy` and `sampled` in full."""


def table(report: Report) -> str:
    """The report as a small table for people."""
    several = report.num_generations > 1
    dropped = f", {report.too_long} dropped as too long" if report.too_long else ""
    lines = [
        f"{report.model} on {report.dataset} ({report.split}): {report.prompts} prompts{dropped}",
        f"{'':24}{'greedy':>10}{'sampled':>10}" + (f"{f'best of {report.num_generations}':>12}" if several else ""),
    ]
    greedy, sampled = report.results["greedy"], report.results.get("sampled")
    for name in greedy.rewards:
        line = f"{name:24}{_cell(greedy.rewards[name]):>10}{_cell(sampled and sampled.rewards[name]):>10}"
        lines.append(line + (f"{_cell(sampled and sampled.best[name]):>12}" if several else ""))
    for label, key in (("tokens per completion", "mean_length"), ("cut at the limit", "truncated")):
        lines.append(f"{label:24}{_cell(getattr(greedy, key)):>10}{_cell(sampled and getattr(sampled, key)):>10}")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}"


def examples(judged: dict[str, Judged], count: int) -> str:
    """The first `count` prompts with their completions and rewards, for people."""
    lines = []
    for number in range(min(count, len(judged["greedy"].completions))):
        prompt = judged["greedy"].completions[number][0]
        lines.append(f"\n{_shown(prompt.prompt)}")
        for kind, one in judged.items():
            each = len(one.completions) // len(judged["greedy"].completions)
            for _, completion, rewards in one.completions[number * each : (number + 1) * each]:
                lines.append(f"  {kind:8} {' '.join(map(_cell, rewards))}  {_shown(completion)}")
    return "".join(f"{line}\n" for line in lines)


def _shown(text: Any) -> str:
    return repr(text if isinstance(text, str) else text[-1]["content"])


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m grpo_trainer.evaluate", description="Measure a model on a dataset by reward functions."
    )
    add = parser.add_argument
    add("--model", required=True, help="hub id, or folder of a transformers model (such as a job's modelPath)")
    add("--dataset", required=True, help="hub id, or path of json, jsonl or parquet files")
    add("--reward", required=True, action="append", help="accuracy, format, or module:function; may be repeated")
    add("--reward-path", type=Path, help="folder to find the modules in, besides the current one")
    add("--reward-timeout", type=float, default=600.0, help="seconds for one reward function (default 600)")
    add("--config", help="configuration (subset) of a hub dataset")
    add("--split", default="train", help="split, such as test or train[:100] (default train)")
    add("--prompt-column", default="prompt", help="column with the prompt (default prompt)")
    add("--system-prompt", help="system message before every prompt")
    add("--max-prompt-length", type=int, default=512, help="longer prompts are dropped (default 512 tokens)")
    add("--max-completion-length", type=int, default=512, help="longest completion (default 512 tokens)")
    add("--limit", type=int, help="use only the first prompts")
    add("--num-generations", type=int, default=1, help="sampled completions per prompt; 0: greedy only (default 1)")
    add("--samples", type=int, default=0, help="print this many prompts with their completions (default 0)")
    add("--temperature", type=float, default=1.0, help="of sampling (default 1.0)")
    add("--seed", type=int, default=42, help="of sampling (default 42)")
    add("--batch-size", type=int, default=64, help="completions generated at a time (default 64)")
    add("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"), help="(default auto)")
    add("--trust-remote-code", action="store_true", help="allow Python code from the model's repository")
    add("--output", type=Path, help="file to write the report to, as JSON")
    return parser


def evaluate(options: argparse.Namespace) -> tuple[Report, dict[str, Judged]]:
    """Run an evaluation; return the report and what it is made from.

    Raises:
        PermanentError: the model, the dataset or a reward function is at fault; it is named.
    """
    started = time.monotonic()
    _check(options)
    # Wrong names of functions come out before the model is loaded.
    functions = [RewardFunction(function=name, timeout_seconds=options.reward_timeout) for name in options.reward]
    with RewardRunner(functions, options.reward_path) as rewards:
        model, tokenizer = _load_model(options)
        dataset = load_prompts(_dataset_spec(options), tokenizer)
        evaluator = Evaluator(
            model,
            tokenizer,
            _first(dataset, options.limit),
            rewards,
            max_completion_length=options.max_completion_length,
            batch_size=options.batch_size,
        )
        judged = {"greedy": evaluator.greedy()}
        if options.num_generations:
            judged["sampled"] = evaluator.sampled(options.num_generations, options.temperature, options.seed)
        main_reward = rewards.names[0]
    results = {name: one.result for name, one in judged.items()}
    report = Report(
        model=options.model,
        dataset=options.dataset,
        split=options.split,
        prompts=len(dataset) if options.limit is None else min(options.limit, len(dataset)),
        too_long=dataset.too_long,
        greedy=results["greedy"].rewards[main_reward],
        sampled=results["sampled"].rewards[main_reward] if "sampled" in results else None,
        num_generations=options.num_generations,
        temperature=options.temperature,
        seed=options.seed,
        seconds=round(time.monotonic() - started, 3),
        results=results,
    )
    return report, judged


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: print the table, write the report; return the exit status.

    64 or 65 on a user's error, 75 where the hub could not be reached.
    """
    options = make_parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    disable_progress_bar()
    disable_progress_bars()
    try:
        report, judged = evaluate(options)
    except (PermanentError, HubUnreachable) as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    sys.stdout.write(table(report) + "\n" + examples(judged, options.samples))
    text = json.dumps(asdict(report), indent=2, allow_nan=False) + "\n"
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


def _check(options: argparse.Namespace) -> None:
    for name, least in (
        ("max_completion_length", 1),
        ("batch_size", 1),
        ("num_generations", 0),
        ("samples", 0),
        ("limit", 1),
    ):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigurationError(f"--{name.replace('_', '-')}", f"must be at least {least}, got {value}")
    for name in ("temperature", "reward_timeout"):
        if getattr(options, name) <= 0:
            raise ConfigurationError(f"--{name.replace('_', '-')}", f"must be above 0, got {getattr(options, name)}")
    if options.reward_path is not None and not options.reward_path.is_dir():
        raise ConfigurationError("--reward-path", f"{options.reward_path} is not a folder")


def _dataset_spec(options: argparse.Namespace) -> DatasetSpec:
    names = ("config", "split", "prompt_column", "system_prompt", "max_prompt_length")
    try:
        return DatasetSpec(name=options.dataset, **{name: getattr(options, name) for name in names})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigurationError(f"--{str(first['loc'][0]).replace('_', '-')}", first["msg"]) from error


def _load_model(options: argparse.Namespace) -> tuple[Any, Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    remote = {"trust_remote_code": options.trust_remote_code}
    try:
        tokenizer = AutoTokenizer.from_pretrained(options.model, **remote)
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=options.dtype, **remote)
    except Exception as error:
        if is_outage(error):
            raise HubUnreachable("--model", options.model, error) from error
        if not isinstance(error, OSError | ValueError):
            raise
        text = " ".join(str(error).split())
        raise ConfigurationError("--model", f"{options.model} cannot be loaded: {text}") from error
    return model.to(device), tokenizer


def _first(dataset: PromptDataset, limit: int | None) -> list[Prompt]:
    return [dataset[i] for i in range(len(dataset) if limit is None else min(limit, len(dataset)))]


if __name__ == "__main__":
    sys.exit(main())
