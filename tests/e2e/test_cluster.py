"""The cluster can do what the other tests rely on; the test cluster leaves nothing behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.support import TOOLS, Cluster, CommandError, Kubectl, Volume, restricted_pod

SERVE = ["python", "-m", "http.server", "8080", "--directory", "/opt/venv/bin"]


def fetch(kubectl: Kubectl, pod: str, host: str) -> bool:
    """Whether a pod gets an answer from a name's port 8080."""
    code = f"import urllib.request as u; print(u.urlopen('http://{host}:8080/', timeout=2).status)"
    try:
        return kubectl("exec", pod, "--", "python", "-c", code).strip() == "200"
    except CommandError:
        return False


def test_node_is_ready(cluster: Cluster) -> None:
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
    kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
    assert kubectl.get("nodes")["items"]


def test_names_resolve_and_policies_are_enforced(cluster: Cluster, kubectl: Kubectl) -> None:
    image = cluster.images.operator
    kubectl.apply(
        restricted_pod("server", image, SERVE, {"app": "server"}),
        restricted_pod("client", image, ["sleep", "infinity"], {"app": "client"}),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "server"},
            "spec": {"selector": {"app": "server"}, "ports": [{"port": 8080}]},
        },
    )
    kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
    kubectl.wait("the client reaches the server by name", lambda: fetch(kubectl, "client", "server"), 30)

    kubectl.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "server"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "server"}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"access": "yes"}}}]}],
            },
        }
    )
    kubectl.wait("the policy shuts the client out", lambda: not fetch(kubectl, "client", "server"), 30)
    kubectl("label", "pod", "client", "access=yes")
    kubectl.wait("the policy lets the labelled client in", lambda: fetch(kubectl, "client", "server"), 30)


def test_pods_share_a_volume_with_the_test(cluster: Cluster, kubectl: Kubectl, volume: Volume) -> None:
    (volume.folder / "from-test").write_text("hello")
    code = "import pathlib; pathlib.Path('/v/from-pod').write_text(pathlib.Path('/v/from-test').read_text())"
    pod = restricted_pod("writer", cluster.images.operator, ["python", "-c", code])
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": volume.claim}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    kubectl.apply(pod)
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/writer", "--timeout=60s")
    assert (volume.folder / "from-pod").read_text() == "hello"


def test_a_killed_owner_takes_its_cluster_down(cluster: Cluster, tmp_path: Path) -> None:
    """A second, empty node beside the first; SIGKILL leaves its owner no time to clean up."""
    if os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG is set: the test cluster is not in use")
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    state = tmp_path / "state"
    settings = os.environ | {
        "CLUSTER_STATE": str(state),
        "CLUSTER_STORE": str(tmp_path / "store"),
        "CLUSTER_PORT": "16444",
        "CGROUP": "grpo-node-2",
    }

    def leftovers() -> str:
        script = [str(TOOLS / "cluster/leftovers.sh")]
        return subprocess.run(script, env=settings, capture_output=True, text=True, check=False).stdout

    try:
        started = time.monotonic()
        up = [str(TOOLS / "cluster/up.sh"), "localhost/pause:3", "localhost/coredns:1.14.3"]
        subprocess.run(up, env=settings | {"CLUSTER_OWNER": str(owner.pid)}, check=True)
        print(f"cluster up, DNS included, in {time.monotonic() - started:.1f} s")
        assert "kubelet" in leftovers(), "it must see what there is"
        owner.kill()
        owner.wait()
        deadline = time.monotonic() + 60
        while left := leftovers():
            assert time.monotonic() < deadline, left
            time.sleep(0.5)
    finally:
        owner.kill()
        subprocess.run([str(TOOLS / "cluster/down.sh")], env=settings, check=True)
    assert not state.exists()
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
    kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=30s")
