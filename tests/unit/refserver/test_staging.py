import threading
from pathlib import Path

import pytest
from grpo_refserver.engine import Refusal, Staged, VersionError
from grpo_refserver.staging import Outcome, Stager

WAIT = 60


class Loading:
    """A loading that waits until it is told what comes of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Path | None]] = []
        self.outcome: Exception | None = None
        self.go = threading.Event()

    def __call__(self, version: str, path: Path | None) -> Staged:
        self.asked.append((version, path))
        assert self.go.wait(WAIT)
        if self.outcome is not None:
            raise self.outcome
        return Staged(version)


@pytest.fixture
def done() -> list[tuple[str, Path | None, Outcome]]:
    return []


@pytest.fixture
def stager(done) -> Stager:
    return Stager(threading.RLock(), lambda *what: done.append(what))


def test_one_version_is_loaded_at_a_time_and_kept(stager, done):
    loading = Loading()
    stager.want("step-1", Path("a"), loading)
    stager.want("step-1", Path("a"), loading)
    stager.want("step-2", Path("b"), loading)
    assert stager.running == "step-1"
    assert not stager.holds("step-1")
    assert not stager.join(0.0)
    loading.go.set()
    assert stager.join(WAIT)
    assert loading.asked == [("step-1", Path("a"))]
    assert [(version, path) for version, path, _ in done] == [("step-1", Path("a"))]
    assert stager.holds("step-1")
    stager.want("step-1", Path("elsewhere"), loading)
    assert (stager.running, loading.asked[1:]) == (None, [])
    assert stager.take().version == "step-1"
    assert not stager.holds("step-1")


def test_another_version_takes_the_place_of_one_that_nobody_took(stager):
    loading = Loading()
    loading.go.set()
    stager.want("step-1", None, loading)
    assert stager.join(WAIT)
    loading.go.clear()
    stager.want("step-2", None, loading)
    assert stager.staged is None, "its memory is free before the next is loaded"
    loading.go.set()
    assert stager.join(WAIT)
    assert stager.holds("step-2")


@pytest.mark.parametrize(
    ("error", "refusal", "message"),
    [
        (VersionError("not there", Refusal.UNAVAILABLE), Refusal.UNAVAILABLE, "not there"),
        (KeyError("x"), Refusal.BAD, "KeyError; the server's log"),
    ],
)
def test_whatever_goes_wrong_is_told_and_the_next_can_be_wanted(stager, done, error, refusal, message):
    loading = Loading()
    loading.outcome = error
    loading.go.set()
    stager.want("step-1", None, loading)
    assert stager.join(WAIT)
    (_, _, outcome), *_ = done
    assert outcome.refusal is refusal
    assert message in str(outcome)
    assert stager.running is None
    loading.outcome = None
    stager.want("step-1", None, loading)
    assert stager.join(WAIT)
    assert stager.holds("step-1")
