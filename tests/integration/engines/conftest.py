"""One server of each engine for the session, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engines.servers import EngineServer, engine_server, python_of
from tests.server_process import free_port
from tests.unit.trainer.tiny_model import save_tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("engines") / "model")


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def server(
    request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineServer]:
    if not python_of(request.param).exists():
        pytest.skip(f"no .venv-{request.param}: run tools/python/engines.sh {request.param}")
    folder = tmp_path_factory.mktemp(request.param)
    with engine_server(request.param, model, folder, free_port()) as running:
        yield running
