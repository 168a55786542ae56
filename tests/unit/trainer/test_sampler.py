from __future__ import annotations

import itertools
import math

import pytest
from grpo_trainer.errors import DatasetError
from grpo_trainer.sampler import DataPosition, PromptSampler, rank_rows, total_optimizer_steps
from hypothesis import given
from hypothesis import strategies as st


def batches(sampler: PromptSampler, count: int, start: DataPosition | None = None) -> list[list[int]]:
    position, out = start or DataPosition(), []
    for _ in range(count):
        batch, position = sampler.batch(position)
        out.append(batch)
    return out


def test_order_equals_trls_sampler_over_epochs() -> None:
    from trl.trainer.utils import RepeatSampler

    theirs = RepeatSampler(range(11), mini_repeat_count=1, batch_size=3, repeat_count=1, shuffle=True, seed=42)
    expected = list(itertools.chain(*(list(theirs) for _ in range(3))))
    ours = batches(PromptSampler(11, 3, seed=42), 9)
    assert list(itertools.chain(*ours)) == expected


@given(
    size=st.integers(1, 40),
    batch=st.integers(1, 10),
    seed=st.integers(0, 5),
    shuffle=st.booleans(),
    used=st.integers(0, 30),
)
def test_resuming_at_any_position_gives_the_same_batches(
    size: int, batch: int, seed: int, shuffle: bool, used: int
) -> None:
    batch = min(size, batch)
    whole = batches(PromptSampler(size, batch, seed=seed, shuffle=shuffle), used + 5)
    position = DataPosition()
    first = PromptSampler(size, batch, seed=seed, shuffle=shuffle)
    for _ in range(used):
        _, position = first.batch(position)
    assert batches(PromptSampler(size, batch, seed=seed, shuffle=shuffle), 5, position) == whole[used:]


def test_going_back_an_epoch_gives_its_order_again() -> None:
    sampler = PromptSampler(10, 2, seed=1)
    first, third = list(sampler.order(0)), list(sampler.order(2))
    assert first != third
    assert sampler.order(0) == first
    assert sampler.order(2) == third


def test_each_epoch_has_every_prompt_once_and_leaves_out_the_rest() -> None:
    sampler = PromptSampler(10, 4, seed=0)
    epoch = list(itertools.chain(*batches(sampler, 2)))
    assert len(set(epoch)) == 8
    _, position = sampler.batch(DataPosition(0, 8))
    assert position == DataPosition(1, 4)
    assert sampler.batches_per_epoch == 2


def test_order_does_not_depend_on_the_batch_size() -> None:
    small = list(itertools.chain(*batches(PromptSampler(12, 2, seed=3), 6)))
    large = list(itertools.chain(*batches(PromptSampler(12, 6, seed=3), 2)))
    assert small == large


def test_without_shuffle_the_order_is_the_datasets() -> None:
    assert batches(PromptSampler(5, 2, seed=9, shuffle=False), 3) == [[0, 1], [2, 3], [0, 1]]


def test_too_small_dataset_is_refused_with_the_remedy() -> None:
    with pytest.raises(DatasetError, match=r"dataset.name: 3 prompts are fewer than .* \(4 = .*lower"):
        PromptSampler(3, 4, seed=0)


@given(prompts=st.lists(st.integers(0, 99), min_size=1, max_size=12), group=st.integers(2, 8), world=st.integers(1, 8))
def test_ranks_share_out_the_global_batch(prompts: list[int], group: int, world: int) -> None:
    if len(prompts) * group % world:
        with pytest.raises(ValueError, match="cannot be shared out evenly"):
            rank_rows(prompts, group, 0, world)
        return
    shares = [rank_rows(prompts, group, rank, world) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    assert list(itertools.chain(*shares)) == [prompt for prompt in prompts for _ in range(group)]


@pytest.mark.parametrize(
    ("batches_per_epoch", "epochs", "spg", "iterations", "accumulation", "steps"),
    [(10, 3.0, 1, 1, 1, 30), (10, 1.0, 4, 2, 4, 20), (3, 0.5, 1, 1, 1, 2), (5, 1.0, 1, 1, 2, 3)],
)
def test_total_steps(
    batches_per_epoch: int, epochs: float, spg: int, iterations: int, accumulation: int, steps: int
) -> None:
    assert (
        total_optimizer_steps(
            batches_per_epoch,
            epochs,
            steps_per_generation=spg,
            num_iterations=iterations,
            gradient_accumulation_steps=accumulation,
        )
        == steps
        == math.ceil(epochs * math.ceil(batches_per_epoch * spg * iterations / accumulation))
    )
