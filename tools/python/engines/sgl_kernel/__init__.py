"""Stands in for sgl-kernel, which has no wheel for CPUs: every kernel is there to be imported, and none can be called.

With it SGLang starts on a CPU with `--attention-backend torch_native`; all else of it is the real thing.
"""

from collections.abc import Callable
from typing import NoReturn


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no build for this machine")

    return missing
