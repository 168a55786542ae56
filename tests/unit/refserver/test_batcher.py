import itertools

from grpo_refserver.batcher import Batch, Batcher, Task
from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.groups import Group
from hypothesis import given
from hypothesis import strategies as st

shapes = st.lists(
    st.tuples(st.integers(1, 20), st.lists(st.integers(0, 20), min_size=1, max_size=4)), min_size=1, max_size=4
)


def cost(sizes: GroupSizes) -> int:
    """A prompt once, and its completions: what a model that shares prompts takes."""
    return sizes.prompt + sizes.total


def task_of(shape, temperature: float = 1.0, version: str | None = "base", **fields) -> Task:
    """A group per (prompt's length, completions' lengths); prompts of one length are the same."""
    return Task(
        [Group.of([1] * prompt, [[2] * length for length in lengths]) for prompt, lengths in shape],
        temperature,
        version,
        **fields,
    )


tasks = st.lists(st.builds(task_of, shapes, st.sampled_from([0.7, 1.0]), st.sampled_from(["base", None])), max_size=6)


def filled(*waiting: Task, budget: int = 40, deterministic: bool = False) -> Batcher:
    batcher = Batcher(budget, deterministic=deterministic)
    for task in waiting:
        batcher.add(task)
    return batcher


def drained(batcher: Batcher, loaded: str = "base", staged: str | None = None) -> list[Batch]:
    batches = []
    while (batch := batcher.next(loaded, cost, staged)) is not None:
        batches.append(batch)
    return batches


def packed(batch: Batch) -> int:
    """Tokens of a batch, each of its prompts counted once."""
    prompts = {group.prompt.tobytes(): group.prompt.size for group in batch.groups}
    return sum(prompts.values()) + sum(group.completion_tokens for group in batch.groups)


@given(tasks, st.integers(1, 200), st.booleans())
def test_every_group_is_in_one_batch_and_batches_keep_the_rules(waiting, budget, deterministic):
    batcher = filled(*waiting, budget=budget, deterministic=deterministic)
    left = {(task, index) for task in waiting for index in range(len(task.groups))}
    assert batcher.waiting_tokens == sum(group.tokens for task in waiting for group in task.groups)
    while (batch := batcher.next("base", cost)) is not None:
        oldest = min(waiting.index(task) for task, _ in left)
        assert waiting[oldest] in batch.tasks, "the oldest request is in every batch: none starves"
        assert set(batch.parts) <= left
        assert len(set(batch.parts)) == len(batch.parts)
        left -= set(batch.parts)
        assert {task.temperature for task in batch.tasks} == {batch.temperature}
        assert {task.version for task in batch.tasks} == {batch.version} == {"base"}
        assert batch.cost == packed(batch)
        assert len(batch.parts) == 1 or (not deterministic and packed(batch) <= budget)
        assert batcher.waiting_tokens == sum(task.groups[index].tokens for task, index in left)
    assert not left
    assert batcher.waiting_tokens == len(batcher) == 0


def test_small_requests_share_a_batch_and_a_large_one_does_not_starve_them():
    large, small, late = task_of([(10, [10]), (11, [9]), (12, [8])]), task_of([(13, [7])]), task_of([(14, [6])])
    batches = drained(filled(large, small, late))
    assert [[large, small, late].index(task) for batch in batches for task, _ in batch.parts] == [0, 0, 0, 1, 2]
    assert [len(batch.parts) for batch in batches] == [2, 2, 1]


def test_groups_of_a_request_go_longest_first():
    task = task_of([(3, [1]), (9, [9]), (5, [5])])
    assert list(task.pending) == [1, 2, 0]


def test_a_prompt_of_several_requests_is_taken_once():
    """Four ranks hold two completions each of the same two prompts, in whatever order of length."""
    ranks = [task_of([(20, [1 + rank, 5]), (21, [5, 4 - rank])]) for rank in range(4)]
    first, second = drained(filled(*ranks, budget=60))
    for batch in (first, second):
        assert set(batch.tasks) == set(ranks)
        assert len({group.prompt.size for group in batch.groups}) == 1


def test_a_prompt_that_is_brought_along_takes_no_room_beyond_the_budget():
    one, other = task_of([(20, [10])]), task_of([(20, [10]), (5, [5])])
    assert [batch.parts for batch in drained(filled(one, other, budget=39))] == [[(one, 0)], [(other, 0)], [(other, 1)]]
    one, other = task_of([(20, [10])]), task_of([(20, [10]), (5, [5])])
    assert [batch.parts for batch in drained(filled(one, other, budget=40))] == [[(one, 0), (other, 0)], [(other, 1)]]


def test_another_temperature_waits_for_the_next_batch_and_not_longer():
    cold, hot = [task_of([(5, [5])], 0.7) for _ in range(3)], [task_of([(6, [5])], 1.7) for _ in range(2)]
    batches = drained(filled(cold[0], hot[0], cold[1], hot[1], cold[2], budget=1000))
    assert [batch.tasks for batch in batches] == [cold, hot]


def test_discarded_work_is_gone():
    one, other = task_of([(10, [10]), (11, [10]), (12, [10])]), task_of([(10, [10])])
    batcher = filled(one, other, budget=20)
    assert batcher.next("base", cost).tasks == [one]
    batcher.discard(one)
    batcher.discard(one)
    assert (len(batcher), batcher.waiting_tokens) == (1, 20)
    assert [batch.tasks for batch in drained(batcher)] == [[other]]


def test_what_has_expired_is_known():
    old, new, patient = (task_of([(1, [1])], deadline=deadline) for deadline in (10.0, 20.0, float("inf")))
    batcher = filled(new, old, patient)
    assert batcher.expired(9.9) == []
    assert batcher.expired(10.0) == [old]
    assert batcher.expired(1e9) == [new, old]


def test_while_a_version_is_staged_the_loaded_one_goes_on_with_everything():
    before, new, after = task_of([(5, [5])]), task_of([(6, [5])], version="step-5"), task_of([(7, [5])])
    batcher = filled(before, new, after, budget=1000)
    assert [batch.tasks for batch in drained(batcher)] == [[before, after]]
    assert batcher.next_version("base") == ("step-5", None)
    assert batcher.wanting("step-5") == [new]


def test_once_staged_only_what_came_before_is_still_scored():
    before, new, after = task_of([(5, [5])]), task_of([(6, [5])], version="step-5"), task_of([(7, [5])])
    batcher = filled(before, new, after, budget=1000)
    assert [batch.tasks for batch in drained(batcher, "base", "step-5")] == [[before]]
    assert [batch.tasks for batch in drained(batcher, "step-5")] == [[new]]
    assert batcher.next_version("step-5") == ("base", None)
    assert [batch.tasks for batch in drained(batcher, "base")] == [[after]]


def test_what_is_begun_is_finished_by_the_same_version():
    new, after = task_of([(6, [5])], version="step-5"), task_of([(7, [5]), (8, [5])], version=None)
    batcher = filled(new, after, budget=13)
    assert batcher.next("base", cost).tasks == [after]
    assert (after.begun, after.version) == (True, "base")
    assert [batch.tasks for batch in drained(batcher, "base", "step-5")] == [[after]]
    assert [batch.tasks for batch in drained(batcher, "step-5")] == [[new]]


def test_who_wants_no_version_is_scored_by_the_one_whose_turn_it_is():
    old, new, any_ = task_of([(5, [5])]), task_of([(6, [5])], version="step-5"), task_of([(7, [5])], version=None)
    batcher = filled(old, new, any_)
    assert [batch.tasks for batch in drained(batcher, "base", "step-5")] == [[old]]
    assert [batch.tasks for batch in drained(batcher, "step-5")] == [[new, any_]]
    assert any_.version == "step-5"


def test_only_the_version_wanted_first_holds_anything_up():
    first, second = task_of([(5, [5])], version="step-1"), task_of([(6, [5])], version="step-2")
    loaded = task_of([(7, [5])])
    batcher = filled(first, second, loaded)
    assert [batch.tasks for batch in drained(batcher, "base", "step-2")] == [[loaded]]


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12))
def test_versions_wanted_at_once_are_served_in_turn_and_swaps_are_bounded(versions):
    """The worst case: every staging is instant."""
    waiting = [task_of([(5, [5])], version=version) for version in versions]
    batcher, loaded, swaps, answered = filled(*waiting, budget=1000), "a", 0, []
    while len(batcher):
        wanted = batcher.next_version(loaded)
        batch = batcher.next(loaded, cost, wanted[0] if wanted else None)
        if batch is None:
            loaded, swaps = wanted[0], swaps + 1
            continue
        assert {task.version for task in batch.tasks} == {loaded}
        answered += batch.tasks
    assert sorted(map(waiting.index, answered)) == list(range(len(waiting)))
    runs = 1 + sum(one != other for one, other in itertools.pairwise(versions))
    assert swaps <= runs


def test_a_version_that_is_only_to_be_loaded_waits_its_turn():
    before, load, after = task_of([(5, [5])]), Task([], 1.0, "step-5"), task_of([(7, [5])], version="step-5")
    batcher = filled(before, load, after)
    assert [batch.tasks for batch in drained(batcher, "base", "step-5")] == [[before]]
    assert batcher.wanting("step-5") == [load, after]
    assert [batch.tasks for batch in drained(batcher, "step-5")] == [[after]]
