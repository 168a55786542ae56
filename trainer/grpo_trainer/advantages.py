"""Rewards → advantages, as TRL 1.16 (`GRPOTrainer._generate_and_score_completions`, `sum_then_normalize`).

N completions of the whole generation batch over all ranks, in groups of G neighbours that share a prompt; F
reward functions. A reward of NaN means that a function had nothing to say about a completion (it returned
None).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

ScaleRewards = Literal["group", "batch", "none"]

STD_EPSILON = 1e-4
"""Added to the standard deviation before dividing by it (TRL)."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """Advantages and the figures that are logged with them. Means and deviations leave out NaN; they are NaN
    where nothing (or for a deviation only one value) is left.
    """

    advantages: Tensor
    """(N,), 0 for a completion that no function could score."""
    rewards: Tensor
    """(N,) weighted sums; NaN for a completion that no function could score."""
    reward_mean: float
    reward_std: float
    function_means: tuple[float, ...]
    """Per reward function, unweighted, over the completions it scored."""
    function_stds: tuple[float, ...]
    frac_reward_zero_std: float
    """Share of completions whose group (or batch, as `scale_rewards` says) has equal rewards: no signal."""
    unscored: int
    """Completions for which every function returned None."""


def compute_advantages(
    rewards_per_function: Tensor,
    weights: Sequence[float],
    *,
    num_generations: int,
    scale_rewards: ScaleRewards = "group",
) -> Advantages:
    """Group-relative advantages of a whole generation batch.

    Args:
        rewards_per_function: (N, F), NaN where a function returned None; rows of one prompt are neighbours.
        weights: F factors.
        num_generations: G, completions per prompt; N must be a multiple of it.
        scale_rewards: divide by the standard deviation of the "group", of the whole "batch", or not at all
            ("none").

    Raises:
        ValueError: a shape does not fit or `scale_rewards` is unknown; the message names the argument.
    """
    if rewards_per_function.dim() != 2 or rewards_per_function.size(1) != len(weights):
        raise ValueError(
            f"weights: {len(weights)} weights for rewards of shape {tuple(rewards_per_function.shape)}; "
            "expected (completions, functions)"
        )
    if num_generations < 2 or rewards_per_function.size(0) % num_generations != 0:
        raise ValueError(
            f"num_generations: {num_generations} must be at least 2 and divide the number of completions, "
            f"{rewards_per_function.size(0)}"
        )
    if scale_rewards not in get_args(ScaleRewards):
        raise ValueError(f"scale_rewards: {scale_rewards!r} is not one of {', '.join(get_args(ScaleRewards))}")

    factors = torch.as_tensor(weights, dtype=rewards_per_function.dtype, device=rewards_per_function.device)
    unscored = rewards_per_function.isnan().all(dim=1)
    # nansum makes 0 of a row without any reward, which would shift the group's mean: such a row stays NaN.
    rewards = (rewards_per_function * factors).nansum(dim=1).masked_fill(unscored, torch.nan)

    groups = rewards.view(-1, num_generations)
    mean = groups.nanmean(dim=1).repeat_interleave(num_generations)
    if scale_rewards == "batch":
        std = nanstd(rewards).expand_as(rewards)
    else:
        std = nanstd(groups, dim=1).repeat_interleave(num_generations)
    advantages = rewards - mean
    if scale_rewards != "none":
        advantages = advantages / (std + STD_EPSILON)

    functions = range(len(weights))
    return Advantages(
        advantages=advantages.nan_to_num(nan=0.0),
        rewards=rewards,
        reward_mean=float(rewards.nanmean()),
        reward_std=float(nanstd(rewards)),
        function_means=tuple(float(rewards_per_function[:, f].nanmean()) for f in functions),
        function_stds=tuple(float(nanstd(rewards_per_function[:, f])) for f in functions),
        frac_reward_zero_std=float(torch.isclose(std, torch.zeros_like(std)).float().mean()),
        unscored=int(unscored.sum()),
    )


def nanstd(values: Tensor, dim: int | None = None) -> Tensor:
    """Unbiased standard deviation that leaves out NaN, over `dim` or all; NaN with fewer than two values."""
    if dim is None:
        values, dim = values.flatten(), 0
    mean = values.nanmean(dim=dim, keepdim=True)
    count = (~values.isnan()).sum(dim=dim)
    squares = ((values - mean) ** 2).nansum(dim=dim)
    return torch.where(count > 1, squares / (count - 1).clamp(min=1), torch.nan).sqrt()


def rewards_tensor(rewards: Sequence[Sequence[float | None]]) -> Tensor:
    """Rewards by completion and function → (N, F) float32, NaN for None."""
    return torch.tensor(
        [[torch.nan if reward is None else reward for reward in row] for row in rewards], dtype=torch.float32
    )
