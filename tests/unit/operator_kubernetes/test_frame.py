import itertools

from grpo_operator.kubernetes import frame, kinds


def test_an_outage_is_sat_out_however_long():
    waits = list(itertools.islice(iter(frame.Backoffs()), 1000))
    assert waits[0] < 1
    assert max(waits) == waits[-1] == 8
    assert sum(waits) > 3600
    assert list(itertools.islice(iter(frame.Backoffs()), 3)) == waits[:3], "it begins anew for each request"


def test_children_are_watched_by_our_label_only():
    settings = frame.settings()
    assert settings.scanning.disabled
    selectors = dict(settings.watching.label_selectors)
    assert len(selectors) == len(kinds.WATCHED)
    assert set(selectors.values()) == {"grpo.dev/job"}


def test_secrets_are_not_watched():
    assert kinds.SECRET not in kinds.WATCHED
