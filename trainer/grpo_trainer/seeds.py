"""Seeds derived from the job's seed: what is random depends on where it happens, not on what ran before.

So a resumed run draws what an unbroken one would have drawn, and no choice of how to generate shifts another draw.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import torch


def derive(seed: int, *where: str | int) -> int:
    """Return a seed for torch, from the job's seed and a name of the place: `derive(42, "sampling", batch, rank)`."""
    text = ":".join(str(part) for part in (seed, *where))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Run with torch's global random state (CPU and `device`) set by `seed`; put the old state back at the end."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
