"""The GRPO losses, as pure functions on tensors.

Formulas and defaults are those of TRL 1.16 (`trl/trainer/grpo_trainer.py`, `GRPOTrainer._compute_loss`),
against which the tests compare losses and gradients. Papers: GRPO (arXiv:2402.03300), Dr. GRPO
(arXiv:2503.20783), DAPO (arXiv:2503.14476), two-sided clipping with `delta` (INTELLECT-2, arXiv:2505.07291),
sequence-level ratios (GSPO, arXiv:2507.18071), bias-corrected KL (DeepSeek-V3.2, arXiv:2512.02556).

Shapes: B completions of this micro-batch, C completion positions (right-padded; `mask` is 1 on the tokens
that count).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

LossType = Literal["grpo", "bnpo", "dr_grpo", "dapo"]
ImportanceSamplingLevel = Literal["token", "sequence"]


@dataclass(frozen=True, slots=True)
class LossSettings:
    """What stays the same over a whole run. Names are TRL's.

    Raises ValueError, naming the field, for a value that no loss is defined for.
    """

    loss_type: LossType = "dapo"
    beta: float = 0.0
    epsilon: float = 0.2
    epsilon_high: float | None = None
    """Upper clip range; None means `epsilon`."""
    delta: float | None = None
    """Upper bound of the unclipped ratio (two-sided clipping); None means no bound."""
    importance_sampling_level: ImportanceSamplingLevel = "token"
    use_bias_correction_kl: bool = True
    max_completion_length: int = 512
    """Tokens per completion by which dr_grpo divides, whatever the completions' real lengths."""

    def __post_init__(self) -> None:
        if self.loss_type not in get_args(LossType):
            raise ValueError(f"loss_type: {self.loss_type!r} is not one of {', '.join(get_args(LossType))}")
        if self.importance_sampling_level not in get_args(ImportanceSamplingLevel):
            levels = ", ".join(get_args(ImportanceSamplingLevel))
            raise ValueError(f"importance_sampling_level: {self.importance_sampling_level!r} is not one of {levels}")
        if self.max_completion_length < 1:
            raise ValueError(f"max_completion_length: must be at least 1, got {self.max_completion_length}")

    @property
    def upper_clip(self) -> float:
        """`epsilon_high`, or `epsilon` where none is set."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high


@dataclass(frozen=True, slots=True)
class Normalization:
    """How one micro-batch's loss is scaled so that a whole accumulation window has the intended weight.

    The loss comes out already divided by `gradient_accumulation_steps`: DeepSpeed must not divide again
    (`engine.backward(loss, scale_wrt_gas=False)`).
    """

    gradient_accumulation_steps: int = 1
    """Micro-batches of the optimizer step that this one belongs to (fewer in a cut-off last step)."""
    steps_per_generation: int = 1
    """Micro-batches per rank that one generation batch was split into."""
    num_items_in_batch: Tensor | float | None = None
    """Active completion tokens of the whole generation batch over all ranks; only dapo needs it."""
    world_size: int = 1
    """Ranks over which DeepSpeed averages the gradients."""


@dataclass(frozen=True, slots=True)
class LossStatistics:
    """Figures of one micro-batch in a form that can be added up over micro-batches and ranks.

    `sums[name]` is a float tensor (2,): sum and count; the mean is sum / count. Names: `kl` (beta not 0),
    `entropy` (given), `clip_ratio/{low,high,region}_mean`. `minima` has `clip_ratio/low_min`, `maxima` has
    `clip_ratio/high_max`: over the sequences, 0-dimensional, NaN where no sequence has an active token.
    """

    sums: dict[str, Tensor] = field(default_factory=dict)
    minima: dict[str, Tensor] = field(default_factory=dict)
    maxima: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LossOutput:
    """`loss` (0-dimensional, with gradient); `policy_loss` is it before the division for accumulation."""

    loss: Tensor
    policy_loss: Tensor
    statistics: LossStatistics


def grpo_loss(
    logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    settings: LossSettings,
    normalization: Normalization,
    old_logps: Tensor | None = None,
    ref_logps: Tensor | None = None,
    entropies: Tensor | None = None,
) -> LossOutput:
    """Loss of one micro-batch and its statistics.

    Args:
        logps: (B, C) log-probabilities of the completion tokens under the policy; carries the gradient.
        advantages: (B,) or (B, C).
        mask: (B, C), 1 on tokens that count, 0 elsewhere.
        settings: what stays the same over the run.
        normalization: scale of this micro-batch.
        old_logps: (B, C) under the policy that sampled; None means on-policy: `logps.detach()`.
        ref_logps: (B, C) under the reference model; must be given when `settings.beta` is not 0.
        entropies: (B, C) of the policy's token distribution; only for the statistics.

    Raises:
        ValueError: a shape does not fit, or an argument that the settings need is missing; named in the message.
    """
    _check_shapes(logps, mask=mask, old_logps=old_logps, ref_logps=ref_logps, entropies=entropies)
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(1)
    if advantages.size(0) != logps.size(0):
        raise ValueError(f"advantages: {advantages.size(0)} rows for {logps.size(0)} completions")
    mask = mask.to(logps.dtype)

    ratio = importance_ratio(
        logps, logps.detach() if old_logps is None else old_logps, mask, settings.importance_sampling_level
    )
    bounded_ratio = ratio if settings.delta is None else ratio.clamp(max=settings.delta)
    clipped_ratio = ratio.clamp(1 - settings.epsilon, 1 + settings.upper_clip)
    per_token_loss = -torch.min(bounded_ratio * advantages, clipped_ratio * advantages)

    per_token_kl: Tensor | None = None
    if settings.beta != 0.0:
        if ref_logps is None:
            raise ValueError(f"ref_logps: needed because beta is {settings.beta}")
        per_token_kl = k3_kl(logps, ref_logps)
        if settings.use_bias_correction_kl:
            per_token_kl = per_token_kl * ratio
        per_token_loss = per_token_loss + settings.beta * per_token_kl

    loss, policy_loss = _aggregate(per_token_loss, mask, settings, normalization)
    with torch.no_grad():
        statistics = _statistics(bounded_ratio, advantages, mask, settings, per_token_kl, entropies)
    return LossOutput(loss, policy_loss, statistics)


def importance_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor, level: ImportanceSamplingLevel) -> Tensor:
    """π/π_old: (B, C) per token, or (B, 1) per sequence: the geometric mean over its active tokens (GSPO)."""
    log_ratio = logps - old_logps
    if level == "sequence":
        log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
    return log_ratio.exp()


def k3_kl(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy ‖ reference) per token, (B, C); unbiased and never negative."""
    difference = ref_logps - logps
    return difference.exp() - difference - 1


def _aggregate(
    per_token_loss: Tensor, mask: Tensor, settings: LossSettings, normalization: Normalization
) -> tuple[Tensor, Tensor]:
    """Per-token losses (B, C) → (loss for backward, the same without the division for accumulation)."""
    total = (per_token_loss * mask).sum()
    if settings.loss_type == "grpo":
        loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    elif settings.loss_type == "bnpo":
        loss = total / mask.sum().clamp(min=1.0)
    elif settings.loss_type == "dr_grpo":
        loss = total / (mask.size(0) * settings.max_completion_length)
    else:
        # The tokens of the generation batch, brought down to one accumulation window; gradients are averaged
        # over ranks later, hence the division by the world size here.
        if normalization.num_items_in_batch is None:
            raise ValueError("num_items_in_batch: loss_type dapo needs it")
        window = normalization.gradient_accumulation_steps / normalization.steps_per_generation
        tokens = torch.as_tensor(normalization.num_items_in_batch, dtype=torch.float32, device=total.device).clamp(
            min=1.0
        )
        loss = total / (tokens / normalization.world_size * window)
        return loss, loss.detach()
    return loss / normalization.gradient_accumulation_steps, loss.detach()


def _statistics(
    ratio: Tensor,
    advantages: Tensor,
    mask: Tensor,
    settings: LossSettings,
    per_token_kl: Tensor | None,
    entropies: Tensor | None,
) -> LossStatistics:
    """Sums and counts over active tokens; per-sequence values ((B, 1)) count once per sequence, as in TRL."""
    low = ((ratio < 1 - settings.epsilon) & (advantages < 0)).to(mask.dtype)
    high = ((ratio > 1 + settings.upper_clip) & (advantages > 0)).to(mask.dtype)
    values = {
        "clip_ratio/low_mean": low,
        "clip_ratio/high_mean": high,
        "clip_ratio/region_mean": torch.maximum(low, high),
    }
    if per_token_kl is not None:
        values["kl"] = per_token_kl
    if entropies is not None:
        values["entropy"] = entropies
    return LossStatistics(
        sums={name: _sum_and_count(value, mask) for name, value in values.items()},
        minima={"clip_ratio/low_min": _over_sequences(low, mask, "min")},
        maxima={"clip_ratio/high_max": _over_sequences(high, mask, "max")},
    )


def _sum_and_count(value: Tensor, mask: Tensor) -> Tensor:
    if value.size(1) == 1 != mask.size(1):
        return torch.stack([value.sum(), torch.tensor(float(value.size(0)), device=value.device)])
    return torch.stack([(value * mask).sum(), mask.sum()])


def _over_sequences(value: Tensor, mask: Tensor, reduce: Literal["min", "max"]) -> Tensor:
    """Smallest or largest share per sequence; sequences with no active token are left out."""
    if value.size(1) == 1 != mask.size(1):
        shares = value.squeeze(1)
    else:
        shares = (value * mask).sum(-1) / mask.sum(-1)
        shares = shares[~shares.isnan()]
    if shares.numel() == 0:
        return torch.tensor(float("nan"), device=value.device)
    return shares.min() if reduce == "min" else shares.max()


def _check_shapes(logps: Tensor, **others: Tensor | None) -> None:
    if logps.dim() != 2:
        raise ValueError(f"logps: expected (completions, tokens), got shape {tuple(logps.shape)}")
    for name, tensor in others.items():
        if tensor is not None and tensor.shape != logps.shape:
            raise ValueError(f"{name}: shape {tuple(tensor.shape)} is not that of logps {tuple(logps.shape)}")
