from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from grpo_trainer.advantages import compute_advantages
from grpo_trainer.losses import LossSettings, LossStatistics, Normalization, grpo_loss
from grpo_trainer.metrics import (
    Averages,
    completion_metrics,
    loss_metrics,
    reward_metrics,
    time_metrics,
)
from torch import Tensor


def alone(rows: Tensor) -> Tensor:
    return rows


def statistics(seed: int, rows: int, masked: bool = False, **options: Any) -> LossStatistics:
    random = torch.Generator().manual_seed(seed)
    logps, old, ref = (-torch.rand(rows, 5, generator=random) for _ in range(3))
    mask = (torch.rand(rows, 5, generator=random) < 0.7).long() * (not masked)
    return grpo_loss(
        logps,
        torch.randn(rows, generator=random),
        mask,
        settings=LossSettings(loss_type="grpo", beta=0.1, **options),
        normalization=Normalization(),
        old_logps=old,
        ref_logps=ref,
        entropies=torch.rand(rows, 5, generator=random),
    ).statistics


def test_means_are_weighted_by_tokens_over_micro_batches_and_ranks() -> None:
    parts = [[statistics(0, 2), statistics(1, 3)], [statistics(2, 1), statistics(3, 4)]]
    gathered: list[Tensor] = []

    def record(rows: Tensor) -> Tensor:
        gathered.append(rows)
        return rows

    for part in parts:
        loss_metrics(part, record)
    together = loss_metrics(parts[0], lambda _: torch.cat(gathered))
    flat = [one for part in parts for one in part]
    for name in flat[0].sums:
        total, count = torch.stack([one.sums[name] for one in flat]).sum(0).tolist()
        assert together[name] == pytest.approx(total / count)
    assert together["clip_ratio/low_min"] == min(float(one.minima["clip_ratio/low_min"]) for one in flat)
    assert together["clip_ratio/high_max"] == max(float(one.maxima["clip_ratio/high_max"]) for one in flat)
    assert together == loss_metrics(flat, alone)


def test_micro_batches_without_tokens_do_not_count() -> None:
    with_tokens, without = statistics(0, 3), statistics(1, 3, masked=True)
    assert loss_metrics([with_tokens, without], alone) == loss_metrics([with_tokens], alone)
    assert all(math.isnan(value) for value in loss_metrics([without], alone).values())


def test_reward_names_are_trls() -> None:
    result = compute_advantages(
        torch.tensor([[1.0, 0.0], [0.0, math.nan], [math.nan, math.nan], [1.0, 1.0]]), [1.0, 0.5], num_generations=2
    )
    metrics = reward_metrics(result, ["accuracy", "format"])
    assert metrics["reward"] == pytest.approx(2.5 / 3)
    assert metrics["rewards/accuracy/mean"] == pytest.approx(2 / 3)
    assert metrics["rewards/format/mean"] == 0.5
    assert metrics["unscored_completions"] == 1
    assert set(metrics) == {
        *("reward", "reward_std", "frac_reward_zero_std", "unscored_completions"),
        *(f"rewards/{name}/{figure}" for name in ("accuracy", "format") for figure in ("mean", "std")),
    }


def test_lengths_of_all_and_of_those_that_ended() -> None:
    assert completion_metrics([3, 5, 8, 8], [False, False, True, True], alone) == {
        "completions/clipped_ratio": 0.5,
        "completions/mean_length": 6.0,
        "completions/min_length": 3.0,
        "completions/max_length": 8.0,
        "completions/mean_terminated_length": 4.0,
        "completions/min_terminated_length": 3.0,
        "completions/max_terminated_length": 5.0,
    }
    cut = completion_metrics([8, 8], [True, True], alone)
    assert cut["completions/mean_terminated_length"] == 0.0


def test_the_slowest_rank_gives_the_time() -> None:
    other = torch.tensor([[5.0, 0.5]], dtype=torch.float64)
    metrics = time_metrics({"rewards": 1.0, "generation": 2.0}, lambda rows: torch.cat([rows, other]))
    assert metrics == {"time/generation": 5.0, "time/rewards": 1.0}
    assert time_metrics({}, alone) == {}


def test_averages_between_two_lines() -> None:
    averages = Averages()
    averages.add({"loss": 1.0, "num_tokens": 10, "kl": math.nan})
    averages.add({"loss": 2.0, "num_tokens": 30, "kl": 0.5})
    averages.add({"reward": math.nan})
    taken = averages.take()
    assert math.isnan(taken.pop("reward"))
    assert taken == {"loss": 1.5, "num_tokens": 30, "kl": 0.5}
    assert averages.take() == {}
