import numpy as np
import pytest
from grpo_scoring.groups import FlatGroups, Group, completion_offsets, offsets, split


def test_counts_of_a_ragged_group():
    group = Group.of([1, 2, 3], [[4, 5], [], [6]])
    assert (group.tokens, group.completion_tokens, group.max_length) == (6, 3, 5)
    assert group.row_tokens == 5 + 4, "an empty completion needs no row"


def test_flat_groups_give_the_groups_back():
    groups = [Group.of([1, 2, 3], [[4, 5], [], [6]]), Group.of([7], [[]])]
    flat = FlatGroups.of(groups)
    assert flat.prompt_offsets.tolist() == [0, 3, 4]
    assert flat.completion_offsets.tolist() == [0, 2, 2, 3, 3]
    assert flat.group_offsets.tolist() == [0, 3, 4]
    assert flat.groups() == groups
    assert groups[0] != Group.of([1, 2, 3], [[4, 5], [], [7]])


@pytest.mark.parametrize(
    ("prompt", "completions", "problem"),
    [
        ([], [[1]], "at least one token id"),
        ([1], [], "at least one completion"),
        ([-1], [[1]], "from 0 to"),
        ([2**31], [[1]], "from 0 to"),
        ([0.5], [[1]], "must be integers"),
        ([[1]], [[1]], "one-dimensional"),
    ],
)
def test_what_is_no_group_is_refused(prompt, completions, problem):
    with pytest.raises(ValueError, match=problem):
        Group.of(prompt, completions)


def test_offsets_refuse_what_32_bits_cannot_hold():
    assert offsets([2**30, 2**30 - 1])[-1] == 2**31 - 1
    with pytest.raises(ValueError, match="fewer at a time"):
        offsets([2**30, 2**30])


def test_split_is_the_inverse_of_concatenation():
    parts = split(np.arange(5), offsets([2, 0, 3]))
    assert [part.tolist() for part in parts] == [[0, 1], [], [2, 3, 4]]
    assert completion_offsets([Group.of([1], [[1, 2], []])]).tolist() == [0, 2, 2]
