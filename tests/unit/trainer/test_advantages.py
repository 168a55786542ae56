"""Advantages against TRL 1.16's own code."""

from __future__ import annotations

import math

import pytest
import torch
from grpo_trainer.advantages import compute_advantages, nanstd, rewards_tensor
from torch import Tensor

from tests.unit.trainer.trl_oracle import trl_advantages

NAN = float("nan")
CASES: dict[str, tuple[Tensor, list[float]]] = {
    "one function": (torch.tensor([[1.0], [0.0], [0.5], [0.25], [1.0], [1.0], [0.0], [0.0]]), [1.0]),
    "two weighted": (torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), [1.0, -0.3]),
    "some None": (
        torch.tensor([[1.0, NAN], [NAN, 0.5], [NAN, NAN], [0.0, 2.0], [1.0, 1.0], [NAN, NAN], [NAN, NAN], [2.0, NAN]]),
        [1.0, 2.0],
    ),
    "one scored in a group": (
        torch.tensor([[1.0], [NAN], [NAN], [NAN], [1.0], [0.0], [1.0], [1.0]]),
        [1.0],
    ),
    "no spread": (torch.full((8, 1), 0.1), [3.0]),
    "weight zero": (torch.randn(8, 2, generator=torch.Generator().manual_seed(1)), [0.0, 1.0]),
}


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("group_size", [2, 4, 8])
@pytest.mark.parametrize("case", CASES)
def test_equals_trl(case: str, group_size: int, scale: str) -> None:
    rewards, weights = CASES[case]
    theirs, metrics = trl_advantages(rewards, weights, num_generations=group_size, scale_rewards=scale)
    ours = compute_advantages(rewards, weights, num_generations=group_size, scale_rewards=scale)  # type: ignore[arg-type]
    torch.testing.assert_close(ours.advantages, theirs, rtol=1e-6, atol=1e-6)
    logged = {"reward": ours.reward_mean, "reward_std": ours.reward_std}
    logged["frac_reward_zero_std"] = ours.frac_reward_zero_std
    for i in range(len(weights)):
        logged[f"rewards/f{i}/mean"] = ours.function_means[i]
        logged[f"rewards/f{i}/std"] = ours.function_stds[i]
    assert logged == pytest.approx(metrics, rel=1e-5, abs=1e-6, nan_ok=True)


def test_unscored_completions_have_no_advantage_and_do_not_move_the_baseline() -> None:
    rewards = rewards_tensor([[1.0], [0.0], [None], [0.5]])
    result = compute_advantages(rewards, [1.0], num_generations=4, scale_rewards="none")
    torch.testing.assert_close(result.advantages, torch.tensor([0.5, -0.5, 0.0, 0.0]))
    assert result.unscored == 1
    assert math.isnan(result.rewards[2])
    assert result.reward_mean == pytest.approx(0.5)


def test_share_of_groups_without_spread() -> None:
    rewards = torch.tensor([[1.0], [1.0], [0.0], [1.0]])
    assert compute_advantages(rewards, [1.0], num_generations=2).frac_reward_zero_std == 0.5


def test_nanstd_is_unbiased_and_leaves_out_nan() -> None:
    assert float(nanstd(torch.tensor([1.0, NAN, 3.0]))) == pytest.approx(math.sqrt(2))
    assert math.isnan(nanstd(torch.tensor([1.0, NAN])))


@pytest.mark.parametrize(
    ("weights", "group_size", "scale", "word"),
    [
        ([1.0, 1.0], 2, "group", "weights: 2 weights"),
        ([1.0], 3, "group", "num_generations: 3"),
        ([1.0], 1, "group", "num_generations: 1"),
        ([1.0], 2, "std", "scale_rewards: 'std'"),
    ],
)
def test_wrong_arguments_are_named(weights: list[float], group_size: int, scale: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        compute_advantages(torch.zeros(4, 1), weights, num_generations=group_size, scale_rewards=scale)  # type: ignore[arg-type]
