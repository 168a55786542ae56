"""torchrun's variables, there and back."""

from __future__ import annotations

import pytest
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.ranks import Ranks


def test_there_and_back() -> None:
    ranks = Ranks(3, 4, 1, 2, "host", 29501)
    assert Ranks.of(ranks.to_environ()) == ranks
    assert not ranks.is_main


def test_nothing_set_is_one_process() -> None:
    assert Ranks.of({}) == Ranks()
    assert Ranks().is_main


@pytest.mark.parametrize("variables", [{"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "-1"}, {"RANK": "x"}])
def test_what_is_wrong_is_named(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"^RANK: "):
        Ranks.of(variables)
