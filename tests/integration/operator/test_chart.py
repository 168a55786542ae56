"""The chart: what it renders is valid, restricted, and gives the operator the rights it needs and no more."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grpo_operator.kubernetes import kinds

from tests.integration.operator.api import Api, wait
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.progress_server import ProgressServer
from tests.integration.operator.stage import Stage
from tests.unit.operator_kubernetes.test_render import reference, trainer
from tools.cluster.control_plane import ControlPlane

CHART = Path(__file__).parents[3] / "charts" / "grpo"

Helm = Callable[..., subprocess.CompletedProcess[str]]

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "namespaced": {"namespaces": ["default", "kube-public"]},
    "no CRD, no RBAC, no account": {
        "crds": {"install": False},
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "mine"},
    },
    "no aggregation": {"rbac": {"aggregate": False}},
    "monitoring": {"monitoring": {"namespace": "monitoring", "serviceMonitor": {"labels": {"release": "prometheus"}}}},
    "dashboard": {"monitoring": {"dashboard": {"enabled": True, "annotations": {"grafana_folder": "GRPO"}}}},
    "no policy": {"networkPolicy": {"enabled": False}},
    "everything set": {
        "images": {
            "operator": {"repository": "mirror/operator", "tag": "1"},
            "pullPolicy": "Always",
            "pullSecrets": ["registry"],
        },
        "verbose": True,
        "extraEnv": [{"name": "GRPO_OPERATOR_LIMITS_BACKOFF", "value": "30"}],
        "podLabels": {"team": "blue"},
        "podAnnotations": {"note": "a"},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "fullnameOverride": "trainer",
        "serviceAccount": {"annotations": {"a": "b"}},
    },
}

BAD_VALUES = [
    "images.operator.repository=",
    "images.pullPolicy=Sometimes",
    "namespaces={Not_a_name}",
    "crds.install=perhaps",
    "replicas=2",
    "monitoring.serviceMonitor.interval=often",
    "monitoring.podMonitor.interval=often",
    "monitoring.dashboard.enabled=perhaps",
]


@pytest.fixture(scope="module")
def helm(plane: ControlPlane) -> Helm:
    def run(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(plane.programs / "helm"), f"--kubeconfig={plane.kubeconfig}", *arguments]
        if values is not None:
            command += ["--values", "-"]
        given = json.dumps(values or {})
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture(scope="module")
def restricted_namespace(api: Api, shared_namespace: str) -> str:
    """A namespace that refuses pods which are not restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.request(
        "PATCH",
        f"/api/v1/namespaces/{shared_namespace}",
        json={"metadata": {"labels": labels}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    return shared_namespace


def render(helm: Helm, namespace: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    done = helm("template", "grpo", str(CHART), "--namespace", namespace, values=values)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_taken_by_the_api_server(
    helm: Helm, api: Api, kubectl: Callable[..., str], restricted_namespace: str, name: str
) -> None:
    linted = helm("lint", "--strict", str(CHART), values=VARIANTS[name])
    assert linted.returncode == 0, linted.stdout + linted.stderr
    manifests = render(helm, restricted_namespace, VARIANTS[name])
    # ServiceMonitor and PodMonitor are kinds of the Prometheus operator's, which this cluster lacks.
    known = [manifest for manifest in manifests if not manifest["kind"].endswith("Monitor")]
    kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(known)
    )
    deployment = next(manifest for manifest in manifests if manifest["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    template["spec"].pop("priorityClassName", None)
    template["spec"].pop("serviceAccountName")  # not made by a dry run
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator", **template["metadata"]}}
    api.create({**pod, "spec": template["spec"]}, restricted_namespace, dry_run=True)


def test_service_monitor_is_rendered_on_demand(helm: Helm) -> None:
    values = {"monitoring": {"serviceMonitor": {"enabled": True}}}
    kinds_of = {manifest["kind"] for manifest in render(helm, "default", values)}
    assert {"ServiceMonitor", "Service"} <= kinds_of


def test_pod_monitor_finds_the_pods_of_jobs(helm: Helm) -> None:
    """Its selector and ports against the pods that the operator makes."""
    everywhere = {"monitoring": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}}
    (monitor,) = (one for one in render(helm, "default", everywhere) if one["kind"] == "PodMonitor")
    assert monitor["spec"]["namespaceSelector"] == {"any": True}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    selector = monitor["spec"]["selector"]
    ports = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
    for manifest in (reference(), trainer()):
        template = manifest["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert selector["matchLabels"].items() <= labels.items()
        for expression in selector["matchExpressions"]:
            assert labels[expression["key"]] in expression["values"]
        assert set(monitor["spec"]["podTargetLabels"]) <= set(labels)
        names = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
        assert len(names & ports) == 1
    named = {"namespaces": ["blue"], "monitoring": {"podMonitor": {"enabled": True}}}
    (monitor,) = (one for one in render(helm, "default", named) if one["kind"] == "PodMonitor")
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["blue"]}


def test_dashboard_is_a_config_map_for_grafanas_sidecar(helm: Helm) -> None:
    values = {"monitoring": {"dashboard": {"enabled": True, "namespace": "grafana"}}}
    (config,) = (
        one for one in render(helm, "default", values) if one["kind"] == "ConfigMap" and "dashboard" in str(one)
    )
    assert config["metadata"]["namespace"] == "grafana"
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config["data"]["grpo.json"]) == json.loads((CHART / "dashboards/grpo.json").read_text())
    assert not any(one["kind"] == "ConfigMap" for one in render(helm, "default", {}))


@pytest.mark.parametrize("setting", BAD_VALUES)
def test_a_bad_value_is_refused_by_name(helm: Helm, setting: str) -> None:
    done = helm("template", "grpo", str(CHART), "--set", setting)
    assert done.returncode != 0
    field = setting.partition("=")[0].split(".")[-1]
    assert field in done.stderr, done.stderr


def test_no_right_is_a_wildcard(helm: Helm) -> None:
    for values in ({}, {"namespaces": ["default"]}):
        for manifest in render(helm, "default", values):
            for rule in manifest.get("rules", []):
                for words in (rule["apiGroups"], rule["resources"], rule["verbs"]):
                    assert "*" not in words
                if "secrets" in rule["resources"]:
                    assert set(rule["verbs"]) == {"get", "create"}


@pytest.fixture(params=["cluster", "namespaced"])
def confined_stage(
    request: pytest.FixtureRequest,
    helm: Helm,
    api: Api,
    kubectl: Callable[..., str],
    plane: ControlPlane,
    tmp_path: Path,
    own_namespace: str,
    rank_zero: ProgressServer,
) -> Iterator[Stage]:
    """A stage whose operator runs with the chart's ServiceAccount and its rights, nothing more."""
    namespaces = [own_namespace] if request.param == "namespaced" else []
    manifests = [
        manifest
        for manifest in render(helm, own_namespace, {"namespaces": namespaces, "crds": {"install": False}})
        if manifest["kind"] != "Deployment"
    ]
    text = yaml.safe_dump_all(manifests)
    kubectl("apply", "--server-side", "-f", "-", stdin=text)
    token = kubectl("create", "token", "grpo", "-n", own_namespace).strip()
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    operator = OperatorProcess(
        kubeconfig, tmp_path / "operator.log", tuple(namespaces), progress_port=str(rank_zero.port)
    )
    operator.start()
    yield Stage(api, own_namespace, operator, rank_zero, "demo")
    operator.kill()
    print(operator.text())
    kubectl("delete", "-f", "-", "--wait=false", stdin=text)


def test_the_charts_rights_are_enough_for_a_whole_life(confined_stage: Stage) -> None:
    stage = confined_stage
    stage.create(hub={"tokenSecret": {"name": "hf-token"}})
    stage.wait_phase("Pending", "MissingSecret")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf-token"}, "stringData": {"token": "x"}}
    stage.api.create(secret, stage.namespace)
    stage.start_training()
    stage.api.delete(kinds.SERVICE, stage.namespace, stage.child("trainer"))
    wait(lambda: stage.api.get(kinds.SERVICE, stage.namespace, stage.child("trainer")), "the Service")
    stage.change(suspend=True)
    stage.wait_phase("Suspended", "Suspended")
    stage.change(suspend=False)
    pods = stage.start_training(attempt=1)
    stage.make_steps(5, attempt=1)
    stage.succeed(pods)
    stage.wait_phase("Succeeded")
    wait(lambda: "Deployment" not in stage.children(), "the reference's removal")
    events = stage.api.list(kinds.EVENT, stage.namespace)
    assert any(event["reason"] == "Succeeded" and event["involvedObject"]["kind"] == "GRPOJob" for event in events)
    refused = [line for line in stage.operator.lines() if "forbidden" in line.lower()]
    assert refused == []
