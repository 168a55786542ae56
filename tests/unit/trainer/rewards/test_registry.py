from __future__ import annotations

import pytest
from grpo_trainer.rewards.accuracy import accuracy
from grpo_trainer.rewards.registry import BUILT_IN, load, metric_names, split_name


def test_built_in_names() -> None:
    assert load("accuracy") is accuracy
    assert all(callable(load(name)) for name in BUILT_IN)


def test_module_and_function() -> None:
    assert load("math:sqrt")(4) == 2
    assert load("pathlib:Path.cwd")()
    assert split_name("a.b:c.d") == ("a.b", "c.d")


@pytest.mark.parametrize("name", ["acuracy", "module:", ":function", "a.b.c"])
def test_unknown_form_is_refused_with_the_choices(name: str) -> None:
    with pytest.raises(ValueError, match=r"built in \(accuracy, format\) nor of the form module:function"):
        load(name)


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(TypeError, match="math:pi is a float"):
        load("math:pi")


def test_metric_names_are_short_and_distinct() -> None:
    assert metric_names(["accuracy", "mine:score"]) == ("accuracy", "score")
    assert metric_names(["a:score", "b.c:score", "format"]) == ("a.score", "b.c.score", "format")
    assert metric_names(["a:score", "a:score"]) == ("a.score", "a.score-2")
