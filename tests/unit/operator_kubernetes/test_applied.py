from grpo_operator.kubernetes import kinds
from grpo_operator.kubernetes.applied import Applied, Child

SERVICE = Child(kinds.SERVICE, "lab", "demo-trainer")
JOB = Child(kinds.JOB, "lab", "demo-trainer-0")
MANIFEST = {"spec": {"a": 1}}


def answer(version: str) -> dict[str, dict[str, str]]:
    return {"metadata": {"resourceVersion": version}}


def test_what_was_never_applied_is_not_current():
    assert not Applied().is_current(SERVICE, MANIFEST)


def test_an_unchanged_child_is_current_until_its_manifest_changes():
    applied = Applied()
    applied.record(SERVICE, MANIFEST, answer("5"))
    assert applied.is_current(SERVICE, {"spec": {"a": 1}})
    assert not applied.is_current(SERVICE, {"spec": {"a": 2}})


def test_our_own_change_heard_back_keeps_it_current():
    applied = Applied()
    applied.record(SERVICE, MANIFEST, answer("5"))
    applied.heard(SERVICE, "5", deleted=False, created_once=False)
    assert applied.is_current(SERVICE, MANIFEST)


def test_somebody_elses_change_or_a_deletion_is_put_back():
    for version, deleted in (("6", False), ("5", True)):
        applied = Applied()
        applied.record(SERVICE, MANIFEST, answer("5"))
        applied.heard(SERVICE, version, deleted=deleted, created_once=False)
        assert not applied.is_current(SERVICE, MANIFEST)


def test_a_child_created_once_is_forgotten_only_when_it_is_deleted():
    applied = Applied()
    applied.record(JOB, None, answer("5"))
    applied.heard(JOB, "9", deleted=False, created_once=True)
    assert applied.is_current(JOB)
    applied.heard(JOB, "10", deleted=True, created_once=True)
    assert not applied.is_current(JOB)


def test_forgetting():
    applied = Applied()
    applied.record(SERVICE, MANIFEST, answer("5"))
    applied.record(JOB, None, answer("5"))
    applied.forget(SERVICE)
    assert not applied.is_current(SERVICE, MANIFEST)
    assert applied.is_current(JOB)
    applied.forget_all()
    assert not applied.is_current(JOB)
