"""A child process that does not outlive the one that started it, however that ends. Linux."""

import ctypes
import os
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(number: int) -> Callable[[], None]:
    """Return a `preexec_fn`: the kernel sends the child this signal when the thread that started it ends.

    So children must be started by a thread that lives as long as the process does: the main one.
    """
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return arrange
