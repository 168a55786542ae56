"""Which engine serves: a model in this process, or one that is spread over several."""

from __future__ import annotations

from grpo_refserver.engine import Engine
from grpo_refserver.local_engine import LocalEngine
from grpo_refserver.settings import Settings


def start_engine(settings: Settings) -> Engine:
    """The engine that the settings ask for, loaded and warmed up.

    Raises:
        ConfigurationError: it cannot start with them.
        HubUnreachable: the hub does not answer.
    """
    if settings.tensor_parallel_size > 1:
        from grpo_refserver.tensor_parallel.engine import TensorParallelEngine  # seconds, and seldom wanted

        return TensorParallelEngine.start(settings)
    return LocalEngine.start(settings)
