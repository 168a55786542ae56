"""Waits between two tries."""

from __future__ import annotations

from grpo_trainer.reference.retries import backoff, not_before, retry_after


def test_retry_after_is_read() -> None:
    assert retry_after(None) is None
    assert retry_after("2") == 2
    assert retry_after("soon") is None
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0


def test_waits_grow_and_stay_bounded() -> None:
    assert backoff(0) <= 0.25
    assert 1 <= backoff(3) <= 2
    assert 7.5 <= backoff(100_000) <= 15.0


def test_ranks_do_not_come_back_all_at_once() -> None:
    assert len({backoff(3) for _ in range(8)}) == 8
    assert len({not_before(2) for _ in range(8)}) == 8
    assert all(2 <= not_before(2) <= 2.5 for _ in range(8))
