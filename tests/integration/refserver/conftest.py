"""A tiny model, and real ``grpo-refserver`` processes on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.trainer.refserver import ReferenceServer, reference_server
from tests.sweep.versions import save_versions


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_versions(tmp_path_factory.mktemp("model"), 0)["base"]


@pytest.fixture(scope="module")
def server(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceServer]:
    """A server whose limits are small, so that a large request is refused and not scored for minutes."""
    folder = tmp_path_factory.mktemp("server")
    flags = ["--max-request-tokens", "2000", "--request-timeout-seconds", "30"]
    with reference_server(model_path, folder, *flags) as running:
        yield running
        assert "Traceback" not in running.log.read_text(), "nothing that was sent has confused the server"
