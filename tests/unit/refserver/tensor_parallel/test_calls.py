"""What rank 0 tells the others arrives as it was said."""

from pathlib import Path

import numpy as np
import pytest
from grpo_refserver.tensor_parallel.calls import Close, Score, Stage, Swap, decode, encode
from grpo_scoring.groups import Group


@pytest.mark.parametrize(
    "call", [Stage("step-5", Path("/output/versions/step-5")), Stage("base", None), Swap("base"), Close()]
)
def test_round_trip(call):
    assert decode(encode(call)) == call


def test_groups_and_the_exact_temperature_arrive():
    groups = [Group.of([1, 2], [[3, 4], [], [5]]), Group.of([7], [[8]])]
    got = decode(encode(Score(groups, 0.1 + 0.2)))
    assert got.temperature == 0.1 + 0.2
    for ours, theirs in zip(groups, got.groups, strict=True):
        np.testing.assert_array_equal(ours.prompt, theirs.prompt)
        assert len(ours.completions) == len(theirs.completions)
        for one, other in zip(ours.completions, theirs.completions, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("data", [b"", b"X", b"J", b'J["Open", {}]', b"Snothing"])
def test_anything_else_is_refused(data):
    with pytest.raises((ValueError, KeyError)):
        decode(data)
