"""Many clients at once against one that sends everything."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from grpo_scoring.groups import Group

from tests.bench.reference.rows import Values
from tests.bench.reference.server import Server, as_rows
from tests.bench.reference.timing import Side, interleave


def measure(server: Server, groups: Sequence[Group], repetitions: int) -> dict[str, Side[Values]]:
    """All groups by one client in one request ("one"), and each group by a client of its own at once ("many")."""
    alone = server.client()
    clients = [server.client() for _ in groups]
    rows = [as_rows([group]) for group in groups]
    everything = as_rows(groups)
    start = threading.Barrier(len(groups))

    with ThreadPoolExecutor(len(groups)) as pool:

        def one() -> Values:
            return np.concatenate(alone.submit(*everything).result())

        def send(index: int) -> Values:
            start.wait(timeout=60)
            return np.concatenate(clients[index].submit(*rows[index]).result())

        def many() -> Values:
            return np.concatenate(list(pool.map(send, range(len(groups)))))

        try:
            one()
            many()
            return interleave({"one": one, "many": many}, repetitions)
        finally:
            for client in (alone, *clients):
                client.close()
