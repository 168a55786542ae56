from grpo_refserver.batcher import Batcher, Task
from grpo_scoring.groups import Group
from hypothesis import given
from hypothesis import strategies as st

shapes = st.lists(
    st.tuples(st.integers(1, 20), st.lists(st.integers(0, 20), min_size=1, max_size=4)), min_size=1, max_size=4
)


def task_of(shape, temperature: float = 1.0, version: str = "base") -> Task:
    return Task(
        [Group.of([1] * prompt, [[2] * length for length in lengths]) for prompt, lengths in shape],
        temperature,
        version,
    )


tasks = st.lists(
    st.builds(task_of, shapes, st.sampled_from([0.7, 1.0]), st.sampled_from(["base", "step-5"])), max_size=6
)


def drained(batcher: Batcher):
    batches = []
    while (batch := batcher.next()) is not None:
        batches.append(batch)
    return batches


@given(tasks, st.integers(1, 200), st.booleans())
def test_every_group_is_in_one_batch_and_batches_keep_the_rules(waiting, budget, deterministic):
    batcher = Batcher(budget, deterministic=deterministic)
    for task in waiting:
        batcher.add(task)
    assert batcher.waiting_tokens == sum(group.tokens for task in waiting for group in task.groups)
    batches = drained(batcher)
    parts = [part for batch in batches for part in batch.parts]
    assert sorted((waiting.index(task), index) for task, index in parts) == [
        (number, index) for number, task in enumerate(waiting) for index in range(len(task.groups))
    ]
    order = [waiting.index(task) for task, _ in parts]
    assert order == sorted(order), "first come, first served"
    for batch in batches:
        assert {(task.version, task.temperature) for task in batch.tasks} == {(batch.version, batch.temperature)}
        rows = sum(len(group.completions) for group in batch.groups)
        padded = rows * max(group.max_length for group in batch.groups)
        assert len(batch.parts) == 1 or (not deterministic and padded <= budget)
    assert batcher.waiting_tokens == len(batcher) == 0


def test_small_requests_share_a_batch_and_a_large_one_does_not_starve_them():
    large, small, late = task_of([(10, [10])] * 5), task_of([(10, [10])]), task_of([(10, [10])])
    batcher = Batcher(40)
    for task in (large, small, late):
        batcher.add(task)
    assert [[waiting is large for waiting, _ in batch.parts] for batch in drained(batcher)] == [
        [True, True],
        [True, True],
        [True, False],
        [False],
    ]


def test_groups_of_a_request_go_longest_first():
    task = task_of([(3, [1]), (9, [9]), (5, [5])])
    assert list(task.pending) == [1, 2, 0]


def test_discarded_work_is_gone():
    one, other = task_of([(10, [10])] * 3), task_of([(10, [10])])
    batcher = Batcher(20)
    batcher.add(one)
    batcher.add(other)
    assert batcher.next().tasks == [one]
    batcher.discard(one)
    batcher.discard(one)
    assert (len(batcher), batcher.waiting_tokens) == (1, 20)
    assert [batch.tasks for batch in drained(batcher)] == [[other]]
