"""From groups to forwards."""

import numpy as np
import pytest
from grpo_scoring.groups import Group
from grpo_scoring.pieces import Piece, forwards, merge
from hypothesis import given
from hypothesis import strategies as st

ALWAYS = lambda sizes: True  # noqa: E731
NEVER = lambda sizes: sizes.count == 1  # noqa: E731


def test_groups_of_one_prompt_are_put_together_and_empty_completions_need_nothing():
    merged = merge([Group.of([1, 2], [[5, 6], []]), Group.of([1, 3], [[7]]), Group.of([1, 2], [[8], [9]])])
    assert [(prompt.tolist(), [(c.tolist(), start) for c, start in members]) for prompt, members in merged] == [
        ([1, 2], [([5, 6], 0), ([8], 3), ([9], 4)]),
        ([1, 3], [([7], 2)]),
    ]


def test_a_shared_prompt_counts_once_and_a_last_token_not_at_all():
    piece = Piece(np.arange(10), (np.arange(4), np.arange(1)), (0, 4), shared=True)
    assert piece.tokens == 10 + 3
    assert Piece(piece.prompt, piece.completions, piece.starts, shared=False).tokens == 13 + 10


def test_a_group_over_the_budget_is_cut_between_completions():
    group = Group.of(range(10), [range(5)] * 5)
    rows = list(forwards([group], 20, ALWAYS))
    assert [[len(piece.completions) for piece in row] for row in rows] == [[2], [2], [1]]
    assert all(sum(piece.tokens for piece in row) <= 20 for row in rows)


def test_a_completion_over_the_budget_goes_alone():
    rows = list(forwards([Group.of(range(10), [range(50), range(2)])], 20, ALWAYS))
    assert [[piece.tokens for piece in row] for row in rows] == [[59], [11]]


lengths = st.lists(st.tuples(st.integers(1, 9), st.lists(st.integers(0, 9), min_size=1, max_size=5)), min_size=1)


@given(lengths, st.integers(1, 40), st.sampled_from([ALWAYS, NEVER]))
def test_every_token_is_scored_once_within_the_budget(shapes, budget, shares):
    groups = [
        Group.of([prompt % 3] * prompt, [[place] * size for place, size in enumerate(sizes)])
        for prompt, sizes in shapes
    ]
    scored = []
    for row in forwards(groups, budget, shares):
        assert sum(piece.tokens for piece in row) <= budget or sum(len(piece.completions) for piece in row) == 1
        for piece in row:
            scored += [i for c, s in zip(piece.completions, piece.starts, strict=True) for i in range(s, s + c.size)]
    assert sorted(scored) == list(range(sum(group.completion_tokens for group in groups)))


@pytest.mark.parametrize("budget", [12, 1000])
def test_pieces_know_their_prompt(budget):
    groups = [Group.of([1, 2, 3], [[4, 5], [6]]), Group.of([7], [[8, 9]])]
    found = {
        start: (piece.prompt.tolist(), completion.tolist())
        for row in forwards(groups, budget, ALWAYS)
        for piece in row
        for completion, start in zip(piece.completions, piece.starts, strict=True)
    }
    assert found == {0: ([1, 2, 3], [4, 5]), 2: ([1, 2, 3], [6]), 3: ([7], [8, 9])}
