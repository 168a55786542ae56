from __future__ import annotations

import threading
from typing import Any

import pytest
from grpo_trainer.rewards.accuracy import accuracy

CASES = [
    (r"So the answer is \boxed{\frac{1}{3}}", r"$\frac{1}{3}$"),
    (r"So the answer is \boxed{\frac{1}{2}}", r"$\frac{1}{3}$"),
    (r"\boxed{0.5}", r"\boxed{\frac{1}{2}}"),
    (r"$x = 4$, so \boxed{4}", "4"),
    ("The answer is 4.", "4"),
    ("no answer at all", "4"),
    (r"\boxed{(2, 3)}", "$(2,3)$"),
    (r"\boxed{12\text{ cm}}", "12"),
    (r"\boxed{7}", "Thus we get #### 7"),
    (r"\boxed{7}", "no number here"),
    ("", "4"),
]


def test_equals_trls_accuracy_reward() -> None:
    from trl.rewards import accuracy_reward

    texts, golds = [text for text, _ in CASES], [gold for _, gold in CASES]
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    theirs = accuracy_reward(messages, golds)
    assert accuracy(messages, solution=golds) == theirs
    assert accuracy(texts, solution=golds) == theirs
    assert {1.0, 0.0, None} == set(theirs)


def test_column_answer_is_read_where_there_is_no_solution() -> None:
    assert accuracy([r"\boxed{4}"], answer=["4"], question=["2+2"]) == [1.0]
    assert accuracy([r"\boxed{4}"], answer=["5"], solution=["4"]) == [1.0]


def test_numbers_in_the_column_are_taken() -> None:
    assert accuracy([r"\boxed{4}", r"\boxed{4}"], answer=[4, 5]) == [1.0, 0.0]


def test_missing_column_is_named() -> None:
    with pytest.raises(ValueError, match="accuracy needs a dataset column named solution or answer"):
        accuracy([r"\boxed{4}"], question=["2+2"])


def test_works_in_a_thread() -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(accuracy([r"\boxed{4}"], answer=["4"])))
    thread.start()
    thread.join(timeout=60)
    assert results == [[1.0]]
