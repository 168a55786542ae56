"""The interface that leads to the master, and the limit of the wait for it."""

from __future__ import annotations

import pytest
from grpo_trainer import rendezvous
from grpo_trainer.interruptions import PeerLost
from grpo_trainer.ranks import Ranks
from grpo_trainer.rendezvous import interface_towards, meet


def test_loopback() -> None:
    assert interface_towards("127.0.0.1", 29500) == "lo"


def test_the_interface_is_the_one_whose_address_is_used() -> None:
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        for entry in addresses:
            if entry.family.name == "AF_INET":
                assert interface_towards(entry.address, 1) == name


def test_no_route() -> None:
    assert interface_towards("not an address", 1) is None


def test_a_name_that_does_not_resolve_is_waited_for_until_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_RESOLVE_EVERY_SECONDS", 0.01)
    ranks = Ranks(rank=1, world_size=2, master_addr="no-such-host.invalid")
    with pytest.raises(PeerLost, match=r"no-such-host\.invalid, did not resolve within trainer\.rendezvousTimeout"):
        meet(ranks, 0.1)
