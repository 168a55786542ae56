"""Groups and requests of a batch."""

from __future__ import annotations

from grpo_scoring.groups import Group
from grpo_scoring.messages import MAX_COMPLETIONS, LogprobsRequest
from grpo_trainer.reference.grouping import group_rows, split_requests
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(0, 5), min_size=1, max_size=5)), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(1, 20)),
    st.booleans(),
)
def test_cutting_loses_nothing_and_keeps_the_order(
    sizes: list[tuple[int, list[int]]], limit: int | None, prompt_per_row: bool
) -> None:
    groups = [Group.of([1] * prompt, [[2] * length for length in lengths]) for prompt, lengths in sizes]
    requests = split_requests(groups, limit, prompt_per_row=prompt_per_row)
    assert all(request for request in requests)
    flat = [
        (group.prompt.size, completion.size)
        for request in requests
        for group in request
        for completion in group.completions
    ]
    assert flat == [(prompt, length) for prompt, lengths in sizes for length in lengths]
    if limit is None:
        return
    for request in requests:
        alone = len(request) == 1 and len(request[0].completions) == 1
        counted = [
            group.tokens + (len(group.completions) - 1) * group.prompt.size * prompt_per_row for group in request
        ]
        assert alone or sum(counted) <= limit


def test_a_request_has_no_more_completions_than_a_server_takes() -> None:
    group = Group.of([1], [[2]] * (MAX_COMPLETIONS + 1))
    requests = split_requests([group], None)
    assert [[len(part.completions) for part in request] for request in requests] == [[MAX_COMPLETIONS], [1]]
    LogprobsRequest(requests[0])


def test_only_neighbours_are_grouped() -> None:
    groups = group_rows([[1], [2], [1]], [[3], [4], [5]])
    assert groups == [Group.of([1], [[3]]), Group.of([2], [[4]]), Group.of([1], [[5]])]
