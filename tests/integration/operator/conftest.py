"""The operator's fixtures: its CRD, an API client, and a stage for a job's life.

An operator takes seconds to start, so the tests of one file share one, and a namespace, each with a job of its own
name. Tests that kill the operator or delete the namespace take `own_stage`.
"""

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from grpo_api.crd import custom_resource_definition
from grpo_operator.kubernetes import kinds

from tests.integration.operator.api import Api, wait
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.progress_server import ProgressServer
from tests.integration.operator.stage import Stage
from tools.cluster.control_plane import ControlPlane

StartOperator = Callable[..., OperatorProcess]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's connection; the CRD is installed and served."""
    client = Api(plane)
    client.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=custom_resource_definition())
    wait(lambda: client.serves(kinds.GRPO_JOB), "the CRD to be served")
    yield client
    client.close()


def _namespace(api: Api) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.request("POST", "/api/v1/namespaces", json={"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait(lambda: api.exists(account), f"the default ServiceAccount of {name}")
    yield name
    if api.exists(f"/api/v1/namespaces/{name}"):
        api.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def own_namespace(api: Api) -> Iterator[str]:
    """A namespace for one test."""
    yield from _namespace(api)


@pytest.fixture(scope="module")
def shared_namespace(api: Api) -> Iterator[str]:
    """A namespace for the tests of one file."""
    yield from _namespace(api)


def _operators(kubeconfig: Path, folder: Path) -> Iterator[StartOperator]:
    started: list[OperatorProcess] = []

    def start(*namespaces: str, **settings: str) -> OperatorProcess:
        process = OperatorProcess(kubeconfig, folder / f"operator-{len(started)}.log", namespaces, **settings)
        started.append(process)
        process.start()
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def start_operator(kubeconfig: Path, tmp_path: Path, api: Api) -> Iterator[StartOperator]:
    """Start an operator for the namespaces given (none: all); it is killed after the test."""
    yield from _operators(kubeconfig, tmp_path)


@pytest.fixture(scope="module")
def shared_rank_zero() -> Iterator[ProgressServer]:
    """Rank 0's endpoint for the tests of one file."""
    server = ProgressServer()
    yield server
    server.close()


@pytest.fixture
def rank_zero() -> Iterator[ProgressServer]:
    """Rank 0's endpoint."""
    server = ProgressServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def shared_operator(
    kubeconfig: Path,
    tmp_path_factory: pytest.TempPathFactory,
    api: Api,
    shared_namespace: str,
    shared_rank_zero: ProgressServer,
) -> Iterator[OperatorProcess]:
    """The operator for the tests of one file."""
    for start in _operators(kubeconfig, tmp_path_factory.mktemp("operator")):
        yield start(shared_namespace, progress_port=str(shared_rank_zero.port))


@pytest.fixture
def stage(
    api: Api, shared_namespace: str, shared_operator: OperatorProcess, shared_rank_zero: ProgressServer
) -> Iterator[Stage]:
    """A stage with a job's name of its own."""
    shared_rank_zero.progress = None
    chosen = Stage(api, shared_namespace, shared_operator, shared_rank_zero, f"job-{next(_numbers)}")
    yield chosen
    print(shared_operator.story(chosen.name))
    if api.get(kinds.GRPO_JOB, chosen.namespace, chosen.name):
        api.delete(kinds.GRPO_JOB, chosen.namespace, chosen.name)


@pytest.fixture
def own_stage(api: Api, own_namespace: str, start_operator: StartOperator, rank_zero: ProgressServer) -> Stage:
    """A stage with an operator and a namespace that the test may do away with."""
    operator = start_operator(own_namespace, progress_port=str(rank_zero.port))
    return Stage(api, own_namespace, operator, rank_zero, "demo")
