"""The operator's fixtures: its CRD, an API client, an operator process for the test's namespace."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from grpo_api.crd import custom_resource_definition

from tests.integration.operator.api import Api
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.progress_server import ProgressServer
from tests.integration.operator.stage import Stage
from tools.cluster.control_plane import ControlPlane

StartOperator = Callable[..., OperatorProcess]


@pytest.fixture(scope="session")
def crd(kubectl: Callable[..., str]) -> None:
    """The CRD, installed and served."""
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(custom_resource_definition()))
    kubectl("wait", "--for=condition=Established", "crd/grpojobs.grpo.dev", "--timeout=30s")


@pytest.fixture(scope="session")
def api(plane: ControlPlane, crd: None) -> Iterator[Api]:
    """An administrator's connection."""
    client = Api(plane)
    yield client
    client.close()


@pytest.fixture
def start_operator(kubeconfig: Path, tmp_path: Path, namespace: str, crd: None) -> Iterator[StartOperator]:
    """Start an operator for the test's namespace (or for `namespaces`); killed after the test, its log shown then."""
    started: list[OperatorProcess] = []

    def start(namespaces: tuple[str, ...] | None = None, **settings: str) -> OperatorProcess:
        watched = (namespace,) if namespaces is None else namespaces
        folder = tmp_path / f"operator-{len(started)}"
        folder.mkdir()
        process = OperatorProcess(kubeconfig, folder, watched, **settings)
        started.append(process)
        process.start()
        return process

    yield start
    for process in started:
        process.kill()
        print(process.text())


@pytest.fixture
def rank_zero() -> Iterator[ProgressServer]:
    """Rank 0's endpoint."""
    server = ProgressServer()
    yield server
    server.close()


@pytest.fixture
def stage(api: Api, namespace: str, start_operator: StartOperator, rank_zero: ProgressServer) -> Stage:
    """A job's stage, its operator running."""
    operator = start_operator(progress_port=str(rank_zero.port))
    return Stage(api, namespace, operator, rank_zero)
