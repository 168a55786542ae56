from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from grpo_trainer.rewards.results import BadRewardsError, to_rewards


@pytest.mark.parametrize(
    "value",
    [
        [1, 0.5, None],
        (True, 0.5, float("nan")),
        np.array([1.0, 0.5, np.nan]),
        torch.tensor([1.0, 0.5, torch.nan]),
        [np.float32(1.0), torch.tensor(0.5), None],
    ],
    ids=["list", "tuple", "numpy", "torch", "scalars"],
)
def test_forms_that_are_taken(value: Any) -> None:
    assert to_rewards(value, 3) == [1.0, 0.5, None]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0, 2.0], "returned 2 rewards for 3 completions"),
        (None, "returned None; expected a list"),
        (0.5, r"returned 0.5 \(float\); expected a list"),
        ([1.0, "2", 3.0], r"returned '2' \(str\) as reward of completion 1"),
        ([1.0, 2.0, [3.0]], "as reward of completion 2"),
        ([1.0, float("inf"), 2.0], "returned inf as reward of completion 1; expected a finite"),
        ({"a": 1}, "expected a list"),
    ],
)
def test_anything_else_is_refused(value: Any, message: str) -> None:
    with pytest.raises(BadRewardsError, match=message):
        to_rewards(value, 3)
