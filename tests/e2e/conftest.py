"""The cluster that the end-to-end tests run on, and a namespace, a volume and the tools for each test.

Without KUBECONFIG the test cluster of tools/cluster is brought up with images built from this tree, and taken
down at the end however the run ends (it stays if it was up before). With KUBECONFIG that cluster is used as it
is; it must have the images (docs/test-cluster.md), and these variables describe it:

GRPO_E2E_IMAGE_OPERATOR, _REFSERVER, _TRAINER   image names, default localhost/grpo-<part>:dev
GRPO_E2E_VOLUMES                                NODE_PATH:LOCAL_PATH of one folder shared by all nodes and this
                                                machine; tests that read a volume are skipped without it
"""

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.operator import Operator, install
from tests.e2e.support import TOOLS, Cluster, Helm, HostFolder, Images, Kubectl, Volume
from tests.measurements import Measurements

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("operator", "refserver", "trainer")
FAILED = pytest.StashKey[bool]()
WAS_UP = pytest.StashKey[bool]()
UP_SECONDS = pytest.StashKey[float]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build and bring up before the first test: minutes, when nothing is cached, that are no test's own."""
    if session.config.option.collectonly or os.environ.get("KUBECONFIG") or os.geteuid() != 0:
        return
    if not any("cluster" in getattr(item, "fixturenames", ()) for item in session.items):
        return
    was_up = session.config.stash[WAS_UP] = _is_up()
    # Should this process be killed, or end before the fixture takes over, the cluster goes down with it.
    owner = {} if was_up else {"CLUSTER_OWNER": str(os.getpid())}
    for command in (["cluster/build.sh"], ["images/build.sh", *PARTS], ["cluster/up.sh"]):
        start = time.monotonic()
        done = subprocess.run([TOOLS / command[0], *command[1:]], env=os.environ | owner, check=False)
        if done.returncode:
            pytest.exit(f"tools/{command[0]} failed", returncode=1)
    if not was_up:
        session.config.stash[UP_SECONDS] = time.monotonic() - start


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A running cluster with the images under test."""
    images = Images(**{p: os.environ.get(f"GRPO_E2E_IMAGE_{p.upper()}", f"localhost/grpo-{p}:dev") for p in PARTS})
    if os.environ.get("KUBECONFIG"):
        yield _given_cluster(images)
        return
    if os.geteuid() != 0:
        pytest.skip("the test cluster needs root; or set KUBECONFIG to another cluster")
    settings = _settings()
    programs = Path(settings["CLUSTER_BIN"])
    volumes = HostFolder(Path(settings["NODE_VOLUMES"]), Path(settings["VOLUMES"]))
    kubeconfig = Path(settings["ADMIN_KUBECONFIG"])
    try:
        yield Cluster(kubeconfig, images, str(programs / "kubectl"), str(programs / "helm"), volumes)
    finally:
        if not pytestconfig.stash[WAS_UP]:
            # Exits 1 if anything is left behind, which fails the run.
            subprocess.run([TOOLS / "cluster/down.sh"], check=True)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace that admits only restricted pods; described in the report if the test fails."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, name)
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    yield name
    if request.node.stash.get(FAILED, False):
        print(kubectl.diagnosis())
    kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str) -> Kubectl:
    """kubectl in the test's namespace."""
    return Kubectl(cluster.kubectl, cluster.kubeconfig, namespace)


@pytest.fixture
def helm(cluster: Cluster, namespace: str) -> Helm:
    """helm in the test's namespace."""
    return Helm(cluster.helm, cluster.kubeconfig, namespace)


@pytest.fixture
def volume(cluster: Cluster, namespace: str, kubectl: Kubectl) -> Iterator[Volume]:
    """A ReadWriteMany claim named `models`, bound, and its folder; gone after the test."""
    if cluster.volumes is None:
        pytest.skip("GRPO_E2E_VOLUMES names no folder that is shared by the nodes and this machine")
    folder = cluster.volumes.here / namespace
    folder.mkdir()
    folder.chmod(0o777)
    common = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": namespace,
        "resources": {"requests": {"storage": "10Gi"}},
    }
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": "10Gi"},
                "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(cluster.volumes.on_node / namespace), "type": "Directory"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models", "namespace": namespace},
            "spec": common,
        },
    )
    kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/models", "--timeout=30s")
    yield Volume("models", folder)
    kubectl("delete", "pv", namespace, "--wait=false")
    shutil.rmtree(folder, ignore_errors=True)  # the pods of a failed test still write into it


@pytest.fixture(scope="session")
def operator(cluster: Cluster) -> Iterator[Operator]:
    """The operator, installed by helm in the namespace grpo-system; uninstalled at the end."""
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, "grpo-system")
    helm = Helm(cluster.helm, cluster.kubeconfig, "grpo-system")
    operator = install(helm, kubectl, cluster.images)
    yield operator
    restarts = operator.restarts()
    log = kubectl("logs", f"deployment/{operator.deployment}", "--previous") if restarts else ""
    helm("uninstall", "grpo", "--wait")
    kubectl("delete", "namespace", "grpo-system", "--timeout=60s", timeout=70)
    assert restarts == 0, f"the operator ended {restarts} times; its log before the last time:\n{log}"


@pytest.fixture(scope="session")
def bench(pytestconfig: pytest.Config) -> Iterator[Measurements]:
    """The figures of this session; written to runs/bench/e2e.json at the end."""
    measurements = Measurements(ROOT / "runs/bench/e2e.json")
    if UP_SECONDS in pytestconfig.stash:
        measurements.add("cluster up, new images imported", pytestconfig.stash[UP_SECONDS], "s", target=60)
    yield measurements
    if measurements.rows:
        measurements.write()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember a failure, for the teardown of `namespace`."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


def _given_cluster(images: Images) -> Cluster:
    """The cluster that KUBECONFIG names, with kubectl and helm from the PATH."""
    programs = {name: shutil.which(name) for name in ("kubectl", "helm")}
    if missing := [name for name, path in programs.items() if path is None]:
        pytest.skip(f"KUBECONFIG is set, but not on the PATH: {', '.join(missing)}")
    volumes = None
    if pair := os.environ.get("GRPO_E2E_VOLUMES"):
        on_node, here = pair.split(":", 1)
        volumes = HostFolder(Path(on_node), Path(here))
    kubeconfig = Path(os.environ["KUBECONFIG"])
    return Cluster(kubeconfig, images, str(programs["kubectl"]), str(programs["helm"]), volumes)


def _is_up() -> bool:
    """Whether the test cluster answers."""
    settings = _settings()
    kubectl = Path(settings["CLUSTER_BIN"], "kubectl")
    flags = [f"--kubeconfig={settings['ADMIN_KUBECONFIG']}", "--request-timeout=5s"]
    command = [str(kubectl), *flags, "get", "--raw=/readyz"]
    return kubectl.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


def _settings() -> dict[str, str]:
    """The variables of tools/cluster/env.sh."""
    names = ["CLUSTER_BIN", "ADMIN_KUBECONFIG", "VOLUMES", "NODE_VOLUMES"]
    script = f'. "$0"; for n in {" ".join(names)}; do echo "$n=${{!n}}"; done'
    command = ["bash", "-c", script, str(TOOLS / "cluster/env.sh")]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())
