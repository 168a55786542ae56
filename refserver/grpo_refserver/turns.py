"""Forwards, and the making of models, one at a time in this process.

While transformers makes a model it changes, for the whole process, torch's default dtype, ``torch.linspace`` and
``PreTrainedModel.tie_weights`` (transformers 5, ``modeling_utils.py``, ``get_init_context``). A forward meanwhile
computes in another dtype. Two models made at once restore each other's changes: from then on no model's weights are
tied any more. What is changed belongs to the process, and so do the turns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_door, _room = threading.Lock(), threading.Lock()


@contextmanager
def forward() -> Iterator[None]:
    """Held while a model computes."""
    with _door:
        _room.acquire()
    try:
        yield
    finally:
        _room.release()


@contextmanager
def construction() -> Iterator[None]:
    """Held while a model is made; whoever waits for it gets the next turn, however many forwards wait."""
    with _door, _room:
        yield
