"""Whoever runs only `kubectl get` and `kubectl describe` learns why a job does not advance."""

from collections.abc import Callable

from grpo_operator.kubernetes import kinds

from tests.integration.operator.api import wait
from tests.integration.operator.stage import Stage

SHOWN = 30
"""Seconds until a fault is in the status."""


def test_an_image_that_cannot_be_pulled(stage: Stage, kubectl: Callable[..., str]) -> None:
    stage.create(reference={"image": "no/such:image"})
    pod = stage.kubelet.await_pods("reference", 1)[0]
    assert pod["spec"]["containers"][0]["image"] == "no/such:image"
    stage.kubelet.wait_reason(pod, "ImagePullBackOff", 'Back-off pulling image "no/such:image"')
    status = stage.wait_phase("Starting", "ImagePullBackOff", SHOWN)
    assert "no/such:image" in status["message"]
    assert "ImagePullBackOff" in kubectl("get", "grpo", stage.name, "-n", stage.namespace)
    wait(lambda: "no/such:image" in _describe(stage, kubectl).partition("Events:")[2], "the Event", SHOWN)
    assert stage.api.get(kinds.JOB, stage.namespace, stage.child("trainer-0")) is None


def test_a_pod_that_no_node_can_take(stage: Stage) -> None:
    stage.create()
    stage.kubelet.run_reference()
    stage.wait_job(0)
    for pod in stage.kubelet.await_pods("trainer", 2, 0):
        stage.kubelet.unschedulable(pod, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    status = stage.wait_phase("Starting", "Unschedulable", SHOWN)
    assert "Insufficient nvidia.com/gpu" in status["message"]


def test_a_volume_that_cannot_be_mounted(stage: Stage) -> None:
    """The kubelet tells it by an Event only."""
    stage.create()
    stage.api.request("POST", "/api/v1/nodes", json={"metadata": {"name": f"node-{stage.name}"}})
    pod = stage.kubelet.await_pods("reference", 1)[0]
    stage.kubelet.bind(pod, f"node-{stage.name}")
    stage.kubelet.event(pod, "FailedMount", 'MountVolume.SetUp failed for volume "token"')
    stage.api.patch(kinds.GRPO_JOB, stage.namespace, stage.name, {"metadata": {"annotations": {"look": "here"}}})
    status = stage.wait_phase("Starting", "FailedMount", SHOWN)
    assert "MountVolume" in status["message"]


def test_objects_that_the_spec_names_and_that_are_missing(stage: Stage) -> None:
    volume = {"claimName": "models", "claimTemplate": None}
    stage.create(hub={"tokenSecret": {"name": "hf-token"}}, checkpoint={"volume": volume})
    status = stage.wait_phase("Pending", timeout=SHOWN)
    assert status["reason"] in ("MissingSecret", "MissingClaim")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    stage.api.create(claim, stage.namespace)
    status = stage.wait_phase("Pending", "MissingSecret", SHOWN)
    assert "hf-token" in status["message"]
    assert "hub.tokenSecret" in status["message"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf-token"}, "stringData": {"token": "x"}}
    stage.api.create(secret, stage.namespace)
    stage.kubelet.run_reference()
    stage.wait_job(0)


def test_a_quota_refuses_a_child(stage: Stage) -> None:
    quota = {"metadata": {"name": "no-jobs"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    path = f"/api/v1/namespaces/{stage.namespace}/resourcequotas"
    stage.api.request("POST", path, json=quota)
    wait(lambda: stage.api.request("GET", f"{path}/no-jobs")["status"].get("used"), "the quota's count")
    stage.create()
    stage.kubelet.run_reference()
    try:
        status = stage.wait_phase("Starting", "QuotaExceeded", SHOWN)
        assert "no-jobs" in status["message"]
    finally:
        stage.api.request("DELETE", f"{path}/no-jobs")
    stage.wait_job(0)


def test_a_quota_refuses_pods(stage: Stage) -> None:
    """The Job and ReplicaSet controllers are refused, not the operator."""
    quota = {"metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}}
    path = f"/api/v1/namespaces/{stage.namespace}/resourcequotas"
    stage.api.request("POST", path, json=quota)
    wait(lambda: stage.api.request("GET", f"{path}/no-pods")["status"].get("used"), "the quota's count")
    try:
        stage.create()
        stage.wait_phase("Starting", "QuotaExceeded", SHOWN)
    finally:
        stage.api.request("DELETE", f"{path}/no-pods")


def test_a_name_that_is_taken(stage: Stage) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": stage.child("config")}, "data": {"a": "b"}}
    stage.api.create(config, stage.namespace)
    stage.create()
    status = stage.wait_phase("Starting", "NameTaken", SHOWN)
    assert stage.child("config") in status["message"]
    found = stage.api.get(kinds.CONFIG_MAP, stage.namespace, stage.child("config"))
    assert found is not None
    assert found["data"] == {"a": "b"}, "nobody's own object is overwritten"


def test_a_child_that_the_api_server_holds_invalid(stage: Stage) -> None:
    stage.create(trainer={"pod": {"nodeSelector": {"not a key!": "x"}}})
    stage.kubelet.run_reference()
    status = stage.wait_phase("Starting", "InvalidChild", SHOWN)
    assert "nodeSelector" in status["message"]


def test_pods_that_violate_the_namespaces_pod_security(stage: Stage) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    path = f"/api/v1/namespaces/{stage.namespace}"
    headers = {"Content-Type": "application/merge-patch+json"}
    stage.api.request("PATCH", path, json={"metadata": {"labels": labels}}, headers=headers)
    stage.create(reference={"pod": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}})
    try:
        stage.wait_phase("Starting", "PodSecurityViolation", SHOWN)
    finally:
        gone = dict.fromkeys(labels)
        stage.api.request("PATCH", path, json={"metadata": {"labels": gone}}, headers=headers)


def _describe(stage: Stage, kubectl: Callable[..., str]) -> str:
    return kubectl("describe", "grpo", stage.name, "-n", stage.namespace)
