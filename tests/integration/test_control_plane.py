"""The integration tests' own control plane: it works, survives an outage, and dies with its test run."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import Kubectl
from tools.cluster import control_plane as module
from tools.cluster.control_plane import ControlPlane


def test_controllers_work(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "job", "one", "--image=none", "-n", namespace)
    kubectl("wait", "--for=create", "pod", "-l", "job-name=one", "-n", namespace, "--timeout=30s")
    assert kubectl("get", "pod", "-n", namespace, "-o", "jsonpath={.items[*].status.phase}") == "Pending"


def test_data_survives_an_outage_of_the_api(plane: ControlPlane, kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "configmap", "kept", "--from-literal=a=b", "-n", namespace)
    plane.stop("kube-apiserver", "etcd")
    plane.start("etcd", "kube-apiserver")
    assert kubectl("get", "configmap", "kept", "-n", namespace, "-o", "jsonpath={.data.a}") == "b"


def test_a_killed_run_leaves_no_process() -> None:
    runner = subprocess.Popen([sys.executable, module.__file__], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    kubeconfig = Path(runner.stdout.readline().split()[1].removeprefix("KUBECONFIG="))
    children = Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()
    assert len(children) == 3
    # A handle outlives its process, and tells its end without a race for the number.
    handles = [os.pidfd_open(int(pid)) for pid in children]
    os.kill(runner.pid, signal.SIGKILL)
    runner.communicate()
    for handle in handles:
        _await_end(handle)
        os.close(handle)
    assert kubeconfig.exists(), "deleted by the next run, as SIGKILL leaves no time for it"
    module.sweep()
    assert not kubeconfig.parent.exists()


def _await_end(handle: int, timeout: float = 10) -> None:
    readable, _, _ = select.select([handle], [], [], timeout)
    assert readable, f"a component still runs {timeout} s after its runner was killed"
