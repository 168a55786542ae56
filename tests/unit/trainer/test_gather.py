"""Hooks come back whatever happens; what does not fit is seen before. (Real gathers: tests/integration/trainer.)"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from grpo_trainer.gather import GatherEstimate, _without_hooks, free_host_memory
from torch import nn, ones

GIB = 2**30


def hooked() -> tuple[nn.Module, list[str]]:
    seen: list[str] = []
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for name in ("first", "second"):
        model[0].register_forward_hook(lambda *_, name=name: seen.append(name))
    model.register_forward_pre_hook(lambda *_: seen.append("begin"))
    return model, seen


def test_hooks_are_off_inside_and_the_same_in_order_afterwards() -> None:
    model, seen = hooked()
    with _without_hooks(model):
        model(ones(1, 2))
    assert seen == []
    model(ones(1, 2))
    assert seen == ["begin", "first", "second"]


def test_hooks_come_back_after_an_error() -> None:
    model, seen = hooked()
    with pytest.raises(RuntimeError, match="out of memory"), _without_hooks(model):
        raise RuntimeError("out of memory")
    model(ones(1, 2))
    assert seen == ["begin", "first", "second"]


def test_a_hook_can_still_be_removed_by_its_handle() -> None:
    model = nn.Linear(2, 2)
    called: list[int] = []
    count: Callable[..., None] = lambda *_: called.append(1)  # noqa: E731
    handle = model.register_forward_hook(count)
    with _without_hooks(model):
        pass
    handle.remove()
    model(ones(1, 2))
    assert called == []


@pytest.mark.parametrize(("weights", "cache", "free", "fits"), [(8, 2, 12, True), (8, 2, 10, False), (8, 4, 12, False)])
def test_what_fits(weights: int, cache: int, free: int, fits: bool) -> None:
    estimate = GatherEstimate(weights * GIB, cache * GIB, free * GIB)
    assert estimate.fits is fits
    assert f"{weights:.2f} GiB of weights" in str(estimate)


def test_free_memory_is_below_what_the_machine_has() -> None:
    import psutil

    assert 0 < free_host_memory() <= psutil.virtual_memory().total
