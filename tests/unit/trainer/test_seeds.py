"""Draws depend on where they happen, and leave the global state as it was."""

from __future__ import annotations

import torch
from grpo_trainer.seeds import derive, seeded

CPU = torch.device("cpu")


def test_places_have_their_own_seeds() -> None:
    seeds = {derive(seed, what, batch, rank) for seed in (0, 1) for what in "ab" for batch in (0, 1) for rank in (0, 1)}
    assert len(seeds) == 16
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive(42, "sampling", 3, 1) == derive(42, "sampling", 3, 1)


def test_the_global_state_is_put_back() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with seeded(5, CPU):
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    with seeded(5, CPU):
        assert torch.equal(torch.rand(3), first)
