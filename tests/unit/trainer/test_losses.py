"""Losses, gradients and statistics against TRL 1.16's own code."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from grpo_trainer.losses import LossSettings, Normalization, grpo_loss, importance_ratio, k3_kl
from torch import Tensor

from tests.unit.trainer.trl_oracle import trl_loss

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo")
CLIPS: tuple[dict[str, Any], ...] = (
    {},
    {"epsilon": 0.1, "epsilon_high": 0.28},
    {"epsilon": 0.2, "delta": 1.5},
    {"epsilon": 0.2, "epsilon_high": 0.6, "delta": 1.3},
)


@dataclass
class Batch:
    logps: Tensor
    old_logps: Tensor
    ref_logps: Tensor
    advantages: Tensor
    mask: Tensor
    entropies: Tensor


def make_batch(seed: int, rows: int = 6, length: int = 9, spread: float = 0.4) -> Batch:
    """Ratios far enough from 1 that each clip acts; one row is masked whole, one is a single token."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    logps = -normal(rows, length).abs() - 0.1
    lengths = torch.randint(1, length + 1, (rows,), generator=random)
    lengths[0], lengths[1] = 0, 1
    return Batch(
        logps=logps.requires_grad_(),
        old_logps=logps.detach() + spread * normal(rows, length),
        ref_logps=logps.detach() + spread * normal(rows, length),
        advantages=normal(rows),
        mask=(torch.arange(length) < lengths.unsqueeze(1)).long(),
        entropies=normal(rows, length).abs(),
    )


def both(batch: Batch, *, on_policy: bool = False, **options: Any) -> tuple[Any, Tensor, Any, Tensor]:
    """Our loss and gradient, and TRL's, for the same batch and options."""
    given: dict[str, Any] = {
        "old_logps": None if on_policy else batch.old_logps,
        "ref_logps": batch.ref_logps if options.get("beta") else None,
        "entropies": batch.entropies,
    }
    scale = {
        name: options.pop(name)
        for name in ("gradient_accumulation_steps", "steps_per_generation", "num_items_in_batch", "world_size")
        if name in options
    }
    scale.setdefault("num_items_in_batch", 37.0)
    ours = grpo_loss(
        batch.logps,
        batch.advantages,
        batch.mask,
        settings=LossSettings(**options),
        normalization=Normalization(**scale),
        **given,
    )
    theirs = trl_loss(batch.logps, batch.advantages, batch.mask, **options, **scale, **given)
    (our_gradient,) = torch.autograd.grad(ours.loss, batch.logps)
    (their_gradient,) = torch.autograd.grad(theirs.loss, batch.logps)
    return ours, our_gradient, theirs, their_gradient


def assert_same(batch: Batch, **options: Any) -> None:
    ours, our_gradient, theirs, their_gradient = both(batch, **options)
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(our_gradient, their_gradient, rtol=1e-6, atol=1e-6)
    assert our_gradient.abs().max() > 1e-4  # the comparison must mean something
    means = {name: float(total / count.clamp(min=1)) for name, (total, count) in ours.statistics.sums.items()}
    extremes = {name: float(value) for name, value in (ours.statistics.minima | ours.statistics.maxima).items()}
    assert means | extremes == pytest.approx(theirs.metrics, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: "-".join(f"{k}{v}" for k, v in clip.items()) or "default")
@pytest.mark.parametrize("on_policy", [True, False], ids=["on-policy", "off-policy"])
@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_equals_trl(loss_type: str, beta: float, on_policy: bool, clip: dict[str, Any], level: str) -> None:
    for seed in range(3):
        assert_same(
            make_batch(seed),
            on_policy=on_policy,
            loss_type=loss_type,
            beta=beta,
            importance_sampling_level=level,
            max_completion_length=16,
            **clip,
        )


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
@pytest.mark.parametrize(("accumulation", "steps", "world"), [(4, 4, 1), (4, 2, 2), (2, 8, 4), (3, 3, 2)])
def test_normalization_equals_trl(loss_type: str, accumulation: int, steps: int, world: int) -> None:
    assert_same(
        make_batch(7),
        loss_type=loss_type,
        beta=0.04,
        max_completion_length=16,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=steps,
        num_items_in_batch=211.0,
        world_size=world,
    )


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("on_policy", [True, False])
def test_kl_without_bias_correction_equals_trl(level: str, on_policy: bool) -> None:
    assert_same(
        make_batch(3),
        on_policy=on_policy,
        loss_type="grpo",
        beta=0.1,
        use_bias_correction_kl=False,
        importance_sampling_level=level,
    )


def test_bias_correction_changes_the_gradient_even_on_policy() -> None:
    gradients = [
        both(make_batch(3), on_policy=True, loss_type="grpo", beta=0.5, use_bias_correction_kl=corrected)[1]
        for corrected in (True, False)
    ]
    assert (gradients[0] - gradients[1]).abs().max() > 1e-3


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_each_clip_acts_in_the_batches_compared(level: str) -> None:
    shares = {"low": 0.0, "high": 0.0}
    for seed in range(3):
        ours, *_ = both(make_batch(seed), loss_type="grpo", importance_sampling_level=level)
        for side in shares:
            shares[side] += float(ours.statistics.sums[f"clip_ratio/{side}_mean"][0])
    assert all(share > 0 for share in shares.values()), shares
    bounded, *_ = both(make_batch(0), loss_type="grpo", delta=1.3, importance_sampling_level="token")
    unbounded, *_ = both(make_batch(0), loss_type="grpo", importance_sampling_level="token")
    assert bounded.loss != unbounded.loss


def test_smallest_share_leaves_out_sequences_without_tokens() -> None:
    """A masked sequence has no share; as a 0 it would be the smallest."""
    batch = make_batch(0)
    batch.old_logps = batch.logps.detach() + 1.0  # every ratio is clipped from below
    batch.advantages = -batch.advantages.abs()
    ours, _, theirs, _ = both(batch, loss_type="grpo")
    assert batch.mask.sum(1).min() == 0
    assert float(ours.statistics.minima["clip_ratio/low_min"]) == theirs.metrics["clip_ratio/low_min"] == 1.0


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_micro_batches_add_up_to_the_whole_batch(loss_type: str) -> None:
    """Accumulated gradients of a split batch are those of the batch in one piece (bnpo averages per micro-batch)."""
    batch = make_batch(11, rows=8)
    tokens = float(batch.mask.sum())
    options = {"loss_type": loss_type, "beta": 0.04, "max_completion_length": 16}

    def gradient(parts: int) -> Tensor:
        total = torch.zeros_like(batch.logps)
        for rows in torch.arange(8).chunk(parts):
            out = grpo_loss(
                batch.logps[rows],
                batch.advantages[rows],
                batch.mask[rows],
                settings=LossSettings(**options),
                normalization=Normalization(parts, parts, tokens),
                old_logps=batch.old_logps[rows],
                ref_logps=batch.ref_logps[rows],
            )
            total += torch.autograd.grad(out.loss, batch.logps)[0]
        return total

    if loss_type == "bnpo":
        assert (gradient(4) - gradient(1)).abs().max() > 1e-4
    else:
        torch.testing.assert_close(gradient(4), gradient(1), rtol=1e-5, atol=1e-7)


def test_masked_positions_have_no_gradient() -> None:
    batch = make_batch(5)
    for loss_type, level in itertools.product(LOSS_TYPES, ("token", "sequence")):
        _, gradient, _, _ = both(batch, loss_type=loss_type, beta=0.04, importance_sampling_level=level)
        assert gradient[batch.mask == 0].abs().max() == 0


def test_advantages_per_token_are_taken() -> None:
    batch = make_batch(5)
    per_token = batch.advantages.unsqueeze(1).expand_as(batch.logps)
    settings, scale = LossSettings(loss_type="grpo"), Normalization()
    one = grpo_loss(batch.logps, batch.advantages, batch.mask, settings=settings, normalization=scale)
    other = grpo_loss(batch.logps, per_token, batch.mask, settings=settings, normalization=scale)
    assert one.loss == other.loss


def test_k3_is_zero_for_equal_models_and_never_negative() -> None:
    batch = make_batch(1)
    assert k3_kl(batch.logps, batch.logps.detach()).abs().max() == 0
    assert k3_kl(batch.logps, batch.ref_logps).min() >= 0


def test_sequence_ratio_is_the_geometric_mean_of_active_tokens() -> None:
    logps = torch.tensor([[0.3, 0.1, 9.0]])
    ratio = importance_ratio(logps, torch.zeros(1, 3), torch.tensor([[1.0, 1.0, 0.0]]), "sequence")
    torch.testing.assert_close(ratio, torch.tensor([[0.2]]).exp())


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"loss_type": "cispo"}, "loss_type"),
        ({"importance_sampling_level": "group"}, "importance_sampling_level"),
        ({"max_completion_length": 0}, "max_completion_length"),
    ],
)
def test_settings_name_the_wrong_field(change: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=f"^{word}: "):
        LossSettings(**change)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"ref_logps": None}, "ref_logps: needed because beta"),
        ({"old_logps": torch.zeros(2, 2)}, r"old_logps: shape \(2, 2\)"),
        ({"mask": torch.ones(1, 1)}, "mask: shape"),
        ({"advantages": torch.ones(5)}, "advantages: 5 rows for 6"),
        ({"normalization": Normalization()}, "num_items_in_batch"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], word: str) -> None:
    batch = make_batch(0)
    arguments: dict[str, Any] = {
        "advantages": batch.advantages,
        "mask": batch.mask,
        "ref_logps": batch.ref_logps,
        "settings": LossSettings(loss_type="dapo", beta=0.04),
        "normalization": Normalization(num_items_in_batch=3.0),
    }
    with pytest.raises(ValueError, match=word):
        grpo_loss(batch.logps, **(arguments | change))
