"""Giving one module another forward, so that ``copy.deepcopy`` of it is a module of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import nn

_PLAIN = "_grpo_scoring_plain_forward"


def replace_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    """Lets ``module(...)`` be ``forward(module, ...)``. A module whose forward has been replaced is left as it is.

    Both forwards are bound methods, which ``copy.deepcopy`` binds to the copy: a closure over the module would let
    the copy compute with the weights of the original.
    """
    if not hasattr(module, _PLAIN):
        setattr(module, _PLAIN, module.forward)
        module.forward = MethodType(forward, module)


def plain_forward(module: nn.Module) -> Callable[..., Any]:
    """The module's own forward, whether it has been replaced or not."""
    plain: Callable[..., Any] = getattr(module, _PLAIN, module.forward)
    return plain


def as_method(parameters_of: Callable[..., Any]) -> inspect.Signature:
    """The signature of a bound callable as a method's: with ``self`` before its parameters."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = inspect.signature(parameters_of)
    return signature.replace(parameters=[own, *signature.parameters.values()])
