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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import disable_progress_bars
from grpo_api.v1alpha1 import Dataset as DatasetSpec
from grpo_api.v1alpha1 import RewardFunction
from pydantic import ValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils.logging import disable_progress_bar

from grpo_trainer.dataset import PromptDataset, load_prompts
from grpo_trainer.errors import ConfigurationError, PermanentError
from grpo_trainer.prompts import (
    Prompt,
    cut_after_eos,
    decode_completions,
    eos_token_ids,
    is_truncated,
    left_pad,
    pad_token_id,
)
from grpo_trainer.rewards.runner import RewardRunner

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """What one way of generating gave, over all prompts."""

    rewards: dict[str, float | None]
    """Mean per reward function over the completions that it scored; None where it scored none."""
    best: dict[str, float | None]
    """Mean over prompts of the best of each prompt's samples."""
    unscored: dict[str, int]
    """Completions for which a function returned None."""
    mean_length: float
    """Tokens per completion, end-of-sequence token included."""
    truncated: float
    """Share of completions cut at the length limit."""


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
    samples: int
    """Sampled completions per prompt."""
    temperature: float
    seed: int
    seconds: float
    results: dict[str, Result] = field(default_factory=dict)
    """`greedy` and `sampled` in full."""


class Evaluator:
    """A model, a dataset and reward functions."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        prompts: Sequence[Prompt],
        rewards: RewardRunner,
        *,
        max_completion_length: int,
        batch_size: int,
    ) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._rewards = rewards
        self._batch_size = batch_size
        self._pad = pad_token_id(tokenizer)
        self._eos = eos_token_ids(model.generation_config, tokenizer)
        self._limits = {
            "max_new_tokens": max_completion_length,
            "pad_token_id": self._pad,
            "eos_token_id": self._eos,
        }
        # generate() fills in what it is not told from the model folder's own settings: none are left there.
        model.generation_config = GenerationConfig(pad_token_id=self._pad, eos_token_id=self._eos)

    def greedy(self) -> Result:
        """One completion per prompt, the likeliest token each time."""
        return self._judge(self._generate(1, do_sample=False), 1)

    def sampled(self, samples: int, temperature: float, seed: int) -> Result:
        """`samples` completions per prompt, from the whole distribution."""
        torch.manual_seed(seed)
        return self._judge(
            self._generate(samples, do_sample=True, temperature=temperature, top_k=0, top_p=1.0), samples
        )

    def _generate(self, samples: int, **options: Any) -> list[list[int]]:
        """Completions of each prompt, a prompt's samples next to each other."""
        config = GenerationConfig(**self._limits, **options)
        rows = [prompt.prompt_ids for prompt in self._prompts for _ in range(samples)]
        completions: list[list[int]] = [[] for _ in rows]
        for chunk in _chunks_of_like_length(rows, self._batch_size):
            ids, mask = left_pad([rows[i] for i in chunk], self._pad)
            device = self._model.device
            with torch.no_grad():
                output = self._model.generate(
                    input_ids=ids.to(device), attention_mask=mask.to(device), generation_config=config
                )
            for i, completion in zip(chunk, cut_after_eos(output[:, ids.size(1) :].cpu(), self._eos), strict=True):
                completions[i] = completion
        return completions

    def _judge(self, completion_ids: list[list[int]], samples: int) -> Result:
        prompts = [prompt for prompt in self._prompts for _ in range(samples)]
        texts = decode_completions(self._tokenizer, completion_ids, [prompt.prompt for prompt in prompts])
        scored = self._rewards.run(
            prompts=[prompt.prompt for prompt in prompts],
            completions=texts,
            completion_ids=completion_ids,
            columns={name: [prompt.columns[name] for prompt in prompts] for name in prompts[0].columns},
        )
        means: dict[str, float | None] = {}
        best: dict[str, float | None] = {}
        unscored: dict[str, int] = {}
        for column, name in enumerate(self._rewards.names):
            rewards = [row[column] for row in scored.rewards]
            means[name] = _mean(rewards)
            unscored[name] = rewards.count(None)
            groups = [rewards[i : i + samples] for i in range(0, len(rewards), samples)]
            best[name] = _mean([max((r for r in group if r is not None), default=None) for group in groups])
        return Result(
            rewards=means,
            best=best,
            unscored=unscored,
            mean_length=sum(map(len, completion_ids)) / len(completion_ids),
            truncated=sum(is_truncated(ids, self._eos) for ids in completion_ids) / len(completion_ids),
        )


def _chunks_of_like_length(rows: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Row numbers in batches of rows that are about as long: little padding."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def table(report: Report) -> str:
    """The report as a small table for people."""
    several = report.samples > 1
    dropped = f", {report.too_long} dropped as too long" if report.too_long else ""
    lines = [
        f"{report.model} on {report.dataset} ({report.split}): {report.prompts} prompts{dropped}",
        f"{'':24}{'greedy':>10}{'sampled':>10}" + (f"{f'best of {report.samples}':>12}" if several else ""),
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
    add("--samples", type=int, default=1, help="sampled completions per prompt; 0: greedy only (default 1)")
    add("--temperature", type=float, default=1.0, help="of sampling (default 1.0)")
    add("--seed", type=int, default=42, help="of sampling (default 42)")
    add("--batch-size", type=int, default=64, help="completions generated at a time (default 64)")
    add("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"), help="(default auto)")
    add("--trust-remote-code", action="store_true", help="allow Python code from the model's repository")
    add("--output", type=Path, help="file to write the report to, as JSON")
    return parser


def evaluate(options: argparse.Namespace) -> Report:
    """Run an evaluation.

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
        results = {"greedy": evaluator.greedy()}
        if options.samples:
            results["sampled"] = evaluator.sampled(options.samples, options.temperature, options.seed)
        main_reward = rewards.names[0]
    return Report(
        model=options.model,
        dataset=options.dataset,
        split=options.split,
        prompts=len(dataset) if options.limit is None else min(options.limit, len(dataset)),
        too_long=dataset.too_long,
        greedy=results["greedy"].rewards[main_reward],
        sampled=results["sampled"].rewards[main_reward] if options.samples else None,
        samples=options.samples,
        temperature=options.temperature,
        seed=options.seed,
        seconds=round(time.monotonic() - started, 3),
        results=results,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: print the table, write the report; return the exit status (64 or 65 on a user's error)."""
    options = make_parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    disable_progress_bar()
    disable_progress_bars()
    try:
        report = evaluate(options)
    except PermanentError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    sys.stdout.write(table(report) + "\n")
    text = json.dumps(asdict(report), indent=2, allow_nan=False) + "\n"
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


def _check(options: argparse.Namespace) -> None:
    for name, least in (("max_completion_length", 1), ("batch_size", 1), ("samples", 0), ("limit", 1)):
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
    except (OSError, ValueError) as error:
        text = " ".join(str(error).split())
        raise ConfigurationError("--model", f"{options.model} cannot be loaded: {text}") from error
    return model.to(device), tokenizer


def _first(dataset: PromptDataset, limit: int | None) -> list[Prompt]:
    return [dataset[i] for i in range(len(dataset) if limit is None else min(limit, len(dataset)))]


if __name__ == "__main__":
    sys.exit(main())
