"""Sequences as groups: every value at its place, and no token computed that need not be."""

import numpy as np
import pytest
from grpo_refserver.prefixes import SharedPrefixes
from hypothesis import given
from hypothesis import strategies as st

Sequence = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def oracle(groups) -> np.ndarray:
    """In place of a model: a number for every completion token that depends on all that stands before it."""
    values = []
    for group in groups:
        for completion in group.completions:
            row = [*group.prompt.tolist(), *completion.tolist()]
            values += [hash(tuple(row[: place + 1])) for place in range(group.prompt.size, len(row))]
    return np.array(values, dtype=np.int64)


def tokens(shared: SharedPrefixes) -> int:
    return sum(group.tokens for group in shared.groups)


@given(st.lists(Sequence, min_size=1, max_size=12), st.booleans())
def test_every_token_finds_its_value(sequences, share):
    shared = SharedPrefixes.of([ids(*sequence) for sequence in sequences], share=share)
    flat = oracle(shared.groups)
    for sequence, places in zip(sequences, shared.places, strict=True):
        expected = [hash(tuple(sequence[: place + 1])) for place in range(1, len(sequence))]
        assert flat[places].tolist() == expected
    assert tokens(shared) <= sum(map(len, sequences)), "never more than rows"
    if not share:
        assert len(shared.groups) == len(sequences)


def test_completions_of_one_prompt_share_it():
    prompt = list(range(100, 150))
    shared = SharedPrefixes.of([ids(*prompt, index, 7, 8) for index in range(8)])
    assert [group.prompt.size for group in shared.groups] == [1, 50]
    assert tokens(shared) == 50 + 50 + 8 * 3


def test_several_prompts_in_one_request_are_told_apart():
    system = [1, 2, 3]
    sequences = [ids(*system, *([10 + prompt] * 40), 60 + index) for index in range(4) for prompt in range(3)]
    shared = SharedPrefixes.of(sequences)
    assert [group.prompt.size for group in shared.groups] == [1, 43] * 3
    assert tokens(shared) == 3 * (43 + 43 + 4)


def test_two_sequences_are_rows():
    shared = SharedPrefixes.of([ids(*range(50), 60), ids(*range(50), 61)])
    assert [group.prompt.size for group in shared.groups] == [1, 1]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_equal_sequences(count):
    shared = SharedPrefixes.of([ids(4, 5, 6)] * count)
    assert len(shared.places) == count
    assert all(places.tolist() == shared.places[0].tolist() for places in shared.places)


def test_a_single_token_has_nothing_to_score():
    shared = SharedPrefixes.of([ids(4)])
    assert shared.places[0].size == 0
    assert shared.groups[0].completion_tokens == 0
