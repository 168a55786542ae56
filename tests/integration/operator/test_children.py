"""Every manifest that can be rendered is taken by the API server, in a namespace that refuses unrestricted pods."""

from typing import Any

import pytest
from grpo_api.v1alpha1 import GRPOJob
from grpo_operator.environment import reference_arguments, trainer_environment
from grpo_operator.kubernetes.places import places
from grpo_operator.kubernetes.render import render
from grpo_operator.kubernetes.settings import Settings
from grpo_operator.state import AttemptTarget, Plan, ReferenceTarget

from tests.integration.operator.api import Api, Refused
from tests.integration.operator.manifests import grpo_job

SETTINGS = Settings(namespace="grpo-system", monitoring_namespace="monitoring", image_pull_secrets=("registry",))

EVERYTHING: dict[str, Any] = {
    "hub": {"tokenSecret": {"name": "hf"}, "offline": True, "cacheVolume": "hub"},
    "rewards": {"codeFrom": {"configMap": "rewards"}},
    "env": [{"name": "A", "value": "b"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    "envFrom": [{"prefix": "X_", "configMapRef": {"name": "more", "optional": True}}],
    "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}],
    "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    "reference": {"replicas": 2, "resources": {"limits": {"nvidia.com/gpu": 1}}},
    "trainer": {
        "processesPerPod": 2,
        "resources": {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 2}},
        "pod": {
            "labels": {"team": "blue"},
            "annotations": {"note": "a"},
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
                    ]
                }
            },
            "topologySpreadConstraints": [
                {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
            ],
            "schedulerName": "volcano",
            "imagePullSecrets": [{"name": "mine"}],
            "securityContext": {"runAsUser": 4711, "fsGroup": 4711},
        },
    },
    "checkpoint": {"volume": {"retention": "Delete", "claimTemplate": {"storageClassName": "fast"}}},
}


def manifests(namespace: str, name: str = "demo", **spec: Any) -> list[dict[str, Any]]:
    raw = grpo_job(name, **spec)
    raw["metadata"] |= {"namespace": namespace, "uid": "0b599fcc-6b1c-4385-a1e0-d75f878a7a43"}
    job = GRPOJob.model_validate(raw)
    where = places(job, SETTINGS)
    plan = Plan(
        status=job.status,
        prepare=True,
        reference=ReferenceTarget(job.spec.reference.replicas, reference_arguments(job, where)),
        attempt=AttemptTarget(0, job.spec.trainer.replicas, trainer_environment(job, 0, where)),
    )
    return render(job, plan, SETTINGS)


@pytest.fixture
def restricted_namespace(api: Api, own_namespace: str) -> str:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.request(
        "PATCH",
        f"/api/v1/namespaces/{own_namespace}",
        json={"metadata": {"labels": labels}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    return own_namespace


@pytest.mark.parametrize("spec", [{}, EVERYTHING], ids=["least", "everything"])
def test_all_children_are_valid_and_their_pods_restricted(
    api: Api, restricted_namespace: str, spec: dict[str, Any]
) -> None:
    rendered = manifests(restricted_namespace, **spec)
    assert {each["kind"] for each in rendered} == {
        "ConfigMap",
        "Deployment",
        "Job",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Secret",
        "Service",
    }
    for manifest in rendered:
        api.create(manifest, restricted_namespace, dry_run=True)
        template = manifest["spec"].get("template") if "spec" in manifest else None
        if template:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **template["metadata"]}}
            api.create({**pod, "spec": template["spec"]}, restricted_namespace, dry_run=True)


def test_the_namespace_would_refuse_an_unrestricted_pod(api: Api, restricted_namespace: str) -> None:
    job = next(each for each in manifests(restricted_namespace) if each["kind"] == "Job")
    spec = job["spec"]["template"]["spec"]
    del spec["securityContext"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
    with pytest.raises(Refused, match="violates PodSecurity"):
        api.create(pod, restricted_namespace, dry_run=True)


def test_the_longest_name_gives_valid_children_and_host_names(api: Api, own_namespace: str) -> None:
    name = "a" * 40
    for manifest in manifests(own_namespace, name):
        api.create(manifest, own_namespace, dry_run=True)
        assert len(manifest["metadata"]["name"]) <= 63
    # 4096 pods of the thousandth attempt.
    assert len(f"{name}-trainer-999-4095") <= 63
