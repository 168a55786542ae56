from grpo_scoring.groups import Group
from grpo_scoring.rows import batches, pad, rows_of
from hypothesis import given
from hypothesis import strategies as st

GROUPS = [Group.of([1, 2, 3], [[4, 5], [], [6]]), Group.of([7], [[8, 9, 10]])]


def test_rows_know_their_place_in_the_answer():
    rows = rows_of(GROUPS)
    assert [(row.start, row.length) for row in rows] == [(0, 4), (2, 3), (3, 3)]
    assert [row.positions.tolist() for row in rows] == [[2, 3], [2], [0, 1, 2]]


def test_pad_leaves_out_the_token_that_predicts_nothing():
    assert pad(rows_of(GROUPS)).tolist() == [[1, 2, 3, 4], [1, 2, 3, 0], [7, 8, 9, 0]]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 128))
def test_every_row_is_in_one_batch_and_only_a_long_row_is_over_the_budget(lengths, budget):
    rows = rows_of([Group.of([1] * length, [[2]]) for length in lengths])
    cut = list(batches(rows, budget))
    assert sorted(row.start for batch in cut for row in batch) == [row.start for row in rows]
    for batch in cut:
        assert len(batch) == 1 or len(batch) * max(row.length for row in batch) <= budget
