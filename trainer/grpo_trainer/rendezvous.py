"""How the ranks find each other: the master's name, the network interface, the store."""

from __future__ import annotations

import logging
import os
import socket
import time
from datetime import timedelta

import psutil
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from grpo_trainer.interruptions import PeerLost
from grpo_trainer.ranks import Ranks

logger = logging.getLogger(__name__)

GLOO_SOCKET_IFNAME = "GLOO_SOCKET_IFNAME"
_RESOLVE_EVERY_SECONDS = 1.0


def meet(ranks: Ranks, timeout_seconds: float) -> Store:
    """Wait until all ranks' store is reachable, and return it.

    In a pod, gloo must listen on the interface that reaches the others; without GLOO_SOCKET_IFNAME it takes the
    address that the host name resolves to, which may be 127.0.0.1. So the variable is set here, to the interface
    that leads to the master, unless it is set already.

    Raises:
        PeerLost: the master's name did not resolve, or its store could not be reached, in time.
    """
    deadline = time.monotonic() + timeout_seconds
    address = _resolve(ranks, deadline, timeout_seconds)
    if GLOO_SOCKET_IFNAME not in os.environ:
        interface = interface_towards(address, ranks.master_port)
        if interface is not None:
            os.environ[GLOO_SOCKET_IFNAME] = interface
    store: Store
    left = timedelta(seconds=max(1.0, deadline - time.monotonic()))
    try:
        # env:// also knows torchrun, whose agent already runs a store.
        store, _, _ = next(iter(rendezvous("env://", timeout=left)))
    except (dist.DistError, RuntimeError) as error:
        raise PeerLost(
            f"rank {ranks.rank} did not meet the others at {ranks.master_addr}:{ranks.master_port} within "
            f"trainer.rendezvousTimeoutSeconds {timeout_seconds:g}: {error}"
        ) from error
    return store


def interface_towards(address: str, port: int) -> str | None:
    """Return the name of the network interface from which `address` is reached; None where it cannot be told."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port))  # datagram: chooses the route, sends nothing
            own = probe.getsockname()[0]
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address.split("%")[0] == own for entry in addresses):
            return str(name)
    return None


def _resolve(ranks: Ranks, deadline: float, timeout_seconds: float) -> str:
    """A pod's name resolves only once the pod has an address: wait for it."""
    told = False
    while True:
        try:
            found = socket.getaddrinfo(ranks.master_addr, ranks.master_port, type=socket.SOCK_STREAM)
            return str(found[0][4][0])
        except socket.gaierror as error:
            if time.monotonic() >= deadline:
                raise PeerLost(
                    f"the name of rank 0, {ranks.master_addr}, did not resolve within "
                    f"trainer.rendezvousTimeoutSeconds {timeout_seconds:g}: {error}"
                ) from error
            if not told:
                logger.info("waiting until the name of rank 0, %s, resolves", ranks.master_addr)
                told = True
            time.sleep(_RESOLVE_EVERY_SECONDS)
