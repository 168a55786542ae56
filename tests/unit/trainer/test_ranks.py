"""torchrun's variables, there and back."""

from __future__ import annotations

import socket

import pytest
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.ranks import Ranks, alone_if_unset


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


def test_without_a_launcher_there_is_one_rank_on_a_free_port() -> None:
    ranks = Ranks.of(alone_if_unset({"HOME": "/root"}))
    assert (ranks.rank, ranks.world_size, ranks.master_addr) == (0, 1, "127.0.0.1")
    with socket.create_server(("127.0.0.1", ranks.master_port)):
        pass


def test_a_launchers_variables_stay() -> None:
    assert alone_if_unset(Ranks(1, 2).to_environ()) == {}


@pytest.mark.parametrize(
    ("variables", "missing"),
    [
        ({"RANK": "0", "WORLD_SIZE": "1"}, "MASTER_ADDR, MASTER_PORT"),
        ({"MASTER_ADDR": "host", "MASTER_PORT": "1"}, "RANK, WORLD_SIZE"),
        ({"PET_NNODES": "2"}, "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"),
    ],
)
def test_half_of_a_launchers_variables_is_refused(variables: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{missing}: not set, .* with torchrun or grpo-trainer"):
        alone_if_unset(variables)
