"""Giving memory back to the system after a model has been dropped."""

from __future__ import annotations

import ctypes
import gc


def give_back() -> None:
    """Frees what only cycles hold, and returns free memory to the system; some tenths of a second.

    A model has reference cycles (its head's scoring, its hooks), which Python collects when it likes, and glibc keeps
    what was freed in its arenas: without this a server that swapped versions of a 260 MB model twelve times held
    700 MB more than at its start, with it nothing.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)
