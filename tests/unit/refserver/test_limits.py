import pytest
from grpo_refserver.errors import ApiError
from grpo_refserver.limits import check_groups
from grpo_scoring.groups import Group

LIMITS = {"vocab_size": 100, "max_sequence_length": 8, "max_request_tokens": 20}


@pytest.mark.parametrize(
    ("groups", "status", "field"),
    [
        ([Group.of([1] * 4, [[2] * 4, []])] * 2, None, None),
        ([Group.of([1] * 4, [[2] * 4])] * 3, 413, "groups"),
        ([Group.of([1], [[2]]), Group.of([1] * 4, [[2], [2] * 5])], 422, "groups[1]"),
        ([Group.of([1, 100], [[2]])], 422, "groups[0].prompt[1]"),
        ([Group.of([1], [[2], [99, 2**31 - 1]])], 422, "groups[0].completions[1][1]"),
    ],
)
def test_what_the_model_cannot_score_is_refused(groups, status, field):
    if status is None:
        check_groups(groups, **LIMITS)
        return
    with pytest.raises(ApiError) as caught:
        check_groups(groups, **LIMITS)
    assert (caught.value.problem.status, caught.value.problem.field) == (status, field)
