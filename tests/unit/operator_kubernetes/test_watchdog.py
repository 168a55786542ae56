from grpo_operator.kubernetes.queue import Key
from grpo_operator.kubernetes.watchdog import Watchdog

A, B = Key("lab", "a"), Key("lab", "b")


def test_a_watch_that_tells_everything_is_alive():
    dog = Watchdog()
    dog.heard(A, "1", deleted=False)
    for _ in range(3):
        dog.compare({A: "1"})
        assert dog.silent == ()


def test_a_change_that_is_never_told_is_noticed_at_the_second_look():
    dog = Watchdog()
    dog.heard(A, "1", deleted=False)
    dog.compare({A: "2"})
    assert dog.silent == ()
    dog.compare({A: "2"})
    assert dog.silent == (A,)


def test_a_new_job_that_is_never_told_is_noticed():
    dog = Watchdog()
    dog.compare({B: "1"})
    dog.compare({B: "1"})
    assert dog.silent == (B,)


def test_a_job_that_changes_all_the_time_is_no_sign_of_a_dead_watch():
    dog = Watchdog()
    dog.heard(A, "1", deleted=False)
    dog.compare({A: "2"})
    dog.heard(A, "2", deleted=False)
    dog.compare({A: "3"})
    assert dog.silent == ()


def test_a_watch_that_comes_back_is_alive_again():
    dog = Watchdog()
    dog.compare({A: "1"})
    dog.compare({A: "1"})
    dog.heard(A, "1", deleted=False)
    dog.compare({A: "1"})
    assert dog.silent == ()


def test_a_deleted_job_is_forgotten():
    dog = Watchdog()
    dog.heard(A, "1", deleted=False)
    dog.heard(A, "2", deleted=True)
    dog.compare({})
    dog.compare({})
    assert dog.silent == ()
