"""Four numbers of a group."""

from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.groups import Group


def test_sizes_of_a_group_leave_out_what_needs_no_forward():
    assert GroupSizes.of_group(Group.of([1, 2], [[3, 4, 5], [], [6]])) == GroupSizes(2, count=2, total=4, longest=3)
    assert GroupSizes.of_group(Group.of([1], [[]])) == GroupSizes(1, count=0, total=0, longest=0)


def test_groups_of_one_prompt_put_together_are_as_one_group():
    parts = [GroupSizes.of(7, sizes) for sizes in ([3, 0, 9], [0], [12, 1])]
    assert parts[0].with_completions_of(parts[1]).with_completions_of(parts[2]) == GroupSizes.of(7, [3, 9, 12, 1])
