"""A real API server, etcd and controller-manager for the integration tests, one for the whole session.

KUBECONFIG is ignored on purpose: these tests write the status of pods and Jobs themselves, which on a cluster
with nodes would fight with its kubelets, and they install CRDs of their own. Tests that may run on any
cluster are the e2e tests.
"""

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.cluster.control_plane import ControlPlane, build_programs, control_plane

Kubectl = Callable[..., str]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile the programs before the first test: minutes, when nothing is cached, that are no test's own."""
    if not session.config.option.collectonly and any(
        "plane" in getattr(item, "fixturenames", ()) for item in session.items
    ):
        build_programs()


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """The running control plane. `stop` and `start` a component to test an outage, and leave it running."""
    with control_plane() as running:
        yield running


@pytest.fixture(scope="session")
def kubeconfig(plane: ControlPlane) -> Path:
    """An administrator's kubeconfig file."""
    return plane.kubeconfig


@pytest.fixture(scope="session")
def kubectl(plane: ControlPlane) -> Kubectl:
    """Run kubectl as administrator and return its output; a failure raises RuntimeError with its message."""

    def run(*args: str, stdin: str | None = None) -> str:
        command = [str(plane.programs / "kubectl"), f"--kubeconfig={plane.kubeconfig}", *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    return run


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A fresh namespace; deleted (without waiting for it) after the test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    # The pods' account is made by a controller: wait, or the first pods of a test are refused.
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    yield name
    kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
