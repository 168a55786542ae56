import pytest
from grpo_refserver.drain_rate import DrainRate


def test_the_rate_is_tokens_over_the_seconds_they_took():
    rate = DrainRate()
    assert rate.tokens_per_second is None
    rate.add(300, 0.1)
    assert rate.tokens_per_second == pytest.approx(3000)
    rate.add(100, 0.3)  # half of what one batch would say, a quarter of the time: 400 tokens in 0.4 s
    assert rate.tokens_per_second == pytest.approx(1000, rel=0.02)


def test_half_a_minute_of_work_outweighs_what_was_before():
    rate = DrainRate()
    for _ in range(100):
        rate.add(1000, 1.0)
    for _ in range(60):
        rate.add(100, 1.0)
    assert 100 < rate.tokens_per_second < 250


@pytest.mark.parametrize(
    ("tokens", "seconds", "asked", "wait"),
    [(1000, 1.0, 1, 1), (1000, 1.0, 1001, 2), (1000, 1.0, 30_000, 30), (1000, 1.0, 10**9, 60), (0, 5.0, 1, 60)],
)
def test_retry_after_is_whole_seconds_within_bounds(tokens, seconds, asked, wait):
    rate = DrainRate()
    assert rate.retry_after(asked) == 1, "nothing is known yet"
    rate.add(tokens, seconds)
    assert rate.retry_after(asked) == wait
