"""The figures of a run, under TRL's names where TRL has them.

| name | meaning |
|---|---|
| `loss`, `grad_norm`, `learning_rate` | of the optimizer step; the loss is the mean over ranks |
| `reward`, `reward_std` | weighted sum over the generation batch of all ranks, and its deviation |
| `rewards/<function>/mean`, `…/std` | per reward function, unweighted, over the completions that it scored |
| `frac_reward_zero_std` | share of completions whose group has equal rewards: nothing to learn from |
| `unscored_completions` | completions that no function scored (not in TRL) |
| `kl`, `entropy` | mean per token, nats |
| `clip_ratio/low_mean`, `…/high_mean`, `…/region_mean` | share of tokens whose ratio is clipped |
| `clip_ratio/low_min`, `…/high_max` | smallest and largest share in a sequence |
| `completions/mean_length`, `…/min_length`, `…/max_length` | tokens, end-of-sequence token included |
| `completions/mean_terminated_length`, … | the same over completions that ended by themselves |
| `completions/clipped_ratio` | share of completions cut at maxCompletionLength |
| `num_tokens` | tokens of prompts and completions so far |
| `tokens_per_second` | completion tokens per second of wall clock, all ranks (not in TRL) |
| `step_time`, `time/<phase>` | seconds per optimizer step; seconds per generation batch in a phase, slowest rank |
| `epoch` | passes over the prompts so far |
| `reference/step` | step whose policy the reference is, with `reference.sync` (not in TRL) |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from grpo_trainer.advantages import Advantages
from grpo_trainer.losses import LossStatistics

Concatenate = Callable[[Tensor], Tensor]
"""Rows of this rank, (n, …) → rows of all ranks below each other (`Communicator.concatenate`); a collective."""

LAST = frozenset({"num_tokens", "learning_rate", "epoch", "reference/step"})
"""Metrics of which the last value is logged, not the mean over the steps since the last line."""


def loss_metrics(statistics: Sequence[LossStatistics], concatenate: Concatenate) -> dict[str, float]:
    """KL, entropy and clip shares of an optimizer step, over its micro-batches and all ranks. A collective.

    Means are weighted by tokens (TRL averages its micro-batches' means). NaN where nothing is counted.
    """
    names = sorted(statistics[0].sums)
    lows, highs = sorted(statistics[0].minima), sorted(statistics[0].maxima)
    sums = torch.stack([torch.stack([one.sums[name].double() for name in names]) for one in statistics]).sum(0)
    minima = [_nan_to(math.inf, [one.minima[name] for one in statistics]).min() for name in lows]
    maxima = [_nan_to(-math.inf, [one.maxima[name] for one in statistics]).max() for name in highs]
    row = torch.cat([sums.flatten().cpu(), *(value.reshape(1) for value in (*minima, *maxima))])
    rows = concatenate(row.unsqueeze(0))

    totals = rows[:, : 2 * len(names)].sum(0).view(-1, 2)
    metrics = {name: _ratio(float(total), float(count)) for name, (total, count) in zip(names, totals, strict=True)}
    smallest = rows[:, 2 * len(names) : 2 * len(names) + len(lows)].amin(0)
    largest = rows[:, 2 * len(names) + len(lows) :].amax(0)
    for name, value in [*zip(lows, smallest, strict=True), *zip(highs, largest, strict=True)]:
        metrics[name] = float(value) if math.isfinite(value) else math.nan
    return metrics


def reward_metrics(advantages: Advantages, function_names: Sequence[str]) -> dict[str, float]:
    """Rewards of a generation batch."""
    metrics = {
        "reward": advantages.reward_mean,
        "reward_std": advantages.reward_std,
        "frac_reward_zero_std": advantages.frac_reward_zero_std,
        "unscored_completions": float(advantages.unscored),
    }
    for name, mean, std in zip(function_names, advantages.function_means, advantages.function_stds, strict=True):
        metrics |= {f"rewards/{name}/mean": mean, f"rewards/{name}/std": std}
    return metrics


def completion_metrics(lengths: Sequence[int], truncated: Sequence[bool], concatenate: Concatenate) -> dict[str, float]:
    """Lengths of a generation batch's completions, all ranks. A collective; ranks have equally many completions.

    Terminated lengths are 0 where no completion ended by itself (TRL).
    """
    rows = torch.stack([torch.tensor(lengths).double(), torch.tensor(truncated).double()], dim=1)
    length, cut = concatenate(rows).unbind(1)
    ended = length[cut == 0] if (cut == 0).any() else torch.zeros(1)
    metrics = {"completions/clipped_ratio": float(cut.mean())}
    for label, values in (("length", length), ("terminated_length", ended)):
        metrics |= {
            f"completions/mean_{label}": float(values.mean()),
            f"completions/min_{label}": float(values.min()),
            f"completions/max_{label}": float(values.max()),
        }
    return metrics


def time_metrics(seconds: Mapping[str, float], concatenate: Concatenate) -> dict[str, float]:
    """`time/<phase>`: seconds of the slowest rank. A collective; all ranks must have the same phases."""
    names = sorted(seconds)
    if not names:
        return {}
    slowest = concatenate(torch.tensor([[seconds[name] for name in names]], dtype=torch.float64)).amax(0)
    return {f"time/{name}": float(value) for name, value in zip(names, slowest, strict=True)}


class Averages:
    """Metrics between two lines of the log: means over the steps, NaN left out (a metric that is only NaN stays so)."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        """Take in what one step or generation batch gave."""
        for name, value in metrics.items():
            self._values.setdefault(name, []).append(float(value))

    def take(self) -> dict[str, float]:
        """Return the averages, and start anew."""
        taken, self._values = self._values, {}
        return {name: _average(name, values) for name, values in taken.items()}


def _average(name: str, values: list[float]) -> float:
    if name in LAST:
        return values[-1]
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan


def _nan_to(value: float, tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.double().cpu() for tensor in tensors]).nan_to_num(nan=value)
