import threading
import time

import numpy as np
import pytest
from grpo_refserver.batcher import Batcher, Task
from grpo_refserver.drain_rate import DrainRate
from grpo_refserver.metrics import Metrics
from grpo_refserver.settings import Settings
from grpo_refserver.start_engine import start_engine
from grpo_refserver.worker import ExpiredError, NotServingError, QueueFullError, State, Worker
from grpo_scoring.logprobs import completion_logprobs


@pytest.fixture
def worker(model_path):
    states: list[State] = []
    ready = threading.Event()

    def on_change(state: State) -> None:
        states.append(state)
        ready.set()

    worker = Worker(
        lambda: start_engine(Settings(model=str(model_path), max_batch_tokens=64)),
        Batcher(64),
        max_queued_tokens=1000,
        metrics=Metrics(),
        on_change=on_change,
    )
    worker.start()
    assert ready.wait(120)
    assert states == [State.READY]
    yield worker
    assert worker.stop(120)


def hold(worker: Worker) -> tuple[threading.Event, threading.Event]:
    """Holds the next forward: the first event says that it is reached, the second lets it go."""
    reached, go = threading.Event(), threading.Event()

    def gate(*_: object) -> None:
        reached.set()
        assert go.wait(120)

    worker.loaded.model.model.register_forward_pre_hook(gate)
    return reached, go


def test_a_task_over_many_batches_comes_back_whole(worker, model, make_groups):
    groups = make_groups((20, [30, 1, 0]), (3, [0]), (60, [50] * 3), *[(5, [5])] * 9)
    scored = worker.submit(Task(groups, 0.7, "base")).result(120)
    expected = completion_logprobs(model, groups, temperature=0.7)
    np.testing.assert_allclose(scored.values, expected.values, atol=1e-6, rtol=1e-6)
    assert np.array_equal(scored.offsets, expected.offsets)


def test_a_cancelled_task_is_not_scored_further(worker, make_groups):
    reached, go = hold(worker)
    task = Task(make_groups(*[(20, [30])] * 5), 1.0, "base")
    future = worker.submit(task)
    assert reached.wait(120)
    worker.cancel(task)
    worker.cancel(task)
    go.set()
    assert future.cancelled()
    worker.submit(Task(make_groups((1, [1])), 1.0, "base")).result(120)
    assert len(task.pending) == 4


def test_retry_after_is_the_time_until_the_request_fits(worker, make_groups):
    reached, go = hold(worker)
    future = worker.submit(Task(make_groups((20, [30])), 1.0, "base"))
    assert reached.wait(120)
    worker.submit(Task(make_groups((200, [20])) * 4, 1.0, "base"))
    # 880 wait of at most 1000: 120 are free, so 100 of 220 must go first.
    for tokens, seconds, expected in [(0, 0.0, 1), (1000, 0.001, 1), (1000, 100.0, 10), (10, 100.0, 60)]:
        worker._rate = DrainRate()
        worker._rate.add(tokens, seconds)
        with pytest.raises(QueueFullError) as caught:
            worker.submit(Task(make_groups((200, [20])), 1.0, "base"))
        assert (caught.value.waiting_tokens, caught.value.retry_after) == (880, expected)
    go.set()
    future.result(120)


def test_what_has_expired_is_not_scored(worker, make_groups):
    reached, go = hold(worker)
    first = worker.submit(Task(make_groups((20, [30])), 1.0, "base"))
    assert reached.wait(120)
    late = Task(make_groups(*[(20, [30])] * 3), 1.0, "base", deadline=time.monotonic())
    expired = worker.submit(late)
    fresh = worker.submit(Task(make_groups((20, [30])), 1.0, "base", deadline=time.monotonic() + 1000))
    go.set()
    with pytest.raises(ExpiredError):
        expired.result(120)
    first.result(120)
    fresh.result(120)
    assert len(late.pending) == 3


def test_a_draining_worker_finishes_and_takes_nothing(worker, make_groups):
    reached, go = hold(worker)
    accepted = worker.submit(Task(make_groups((20, [30]), (9, [9])), 1.0, "base"))
    assert reached.wait(120)
    worker.drain()
    with pytest.raises(NotServingError, match="draining"):
        worker.submit(Task(make_groups((1, [1])), 1.0, "base"))
    go.set()
    assert np.isfinite(accepted.result(120).values).all()


def test_abandoned_tasks_are_told(worker, make_groups):
    reached, go = hold(worker)
    futures = [worker.submit(Task(make_groups((20, [30])), 1.0, "base")) for _ in range(3)]
    assert reached.wait(120)
    worker.drain()
    worker.abandon()
    for future in futures:
        with pytest.raises(NotServingError, match="draining"):
            future.result(120)
    go.set()


def test_a_model_that_does_not_load_is_a_failure():
    failed = threading.Event()
    worker = Worker(
        lambda: 1 / 0,
        Batcher(64),
        max_queued_tokens=1,
        metrics=Metrics(),
        on_change=lambda _: failed.set(),
    )
    worker.start()
    assert failed.wait(120)
    assert worker.state is State.FAILED
    assert isinstance(worker.failure, ZeroDivisionError)
    worker.drain()
    assert worker.state is State.FAILED
    assert worker.stop(120)
