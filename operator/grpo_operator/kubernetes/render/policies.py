"""NetworkPolicies: who may reach the job's pods. What they reach (hub, metrics services) stays open."""

from typing import Any

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.kubernetes import labels, names
from grpo_operator.kubernetes.settings import Settings

from .meta import Manifest, metadata

NAMESPACE_NAME = "kubernetes.io/metadata.name"


def reference_policy(job: GRPOJob, settings: Settings) -> Manifest:
    """Return the policy of the reference pods: this job's trainer asks, monitoring reads metrics."""
    port = _tcp(settings.reference_port)
    rules = [{"from": [_pods(job, "trainer")], "ports": port}]
    if settings.monitoring_namespace:
        rules.append({"from": [_namespace(settings.monitoring_namespace)], "ports": port})
    return _policy(job, "reference", rules)


def trainer_policy(job: GRPOJob, settings: Settings) -> Manifest:
    """Return the policy of the trainer pods: its ranks reach each other on any port (collectives choose their own),
    the operator reads progress, monitoring reads metrics."""
    port = _tcp(settings.progress_port)
    rules: list[dict[str, Any]] = [{"from": [_pods(job, "trainer")]}]
    if settings.namespace:
        operator = {**_namespace(settings.namespace), "podSelector": {"matchLabels": labels.OPERATOR_PODS}}
        rules.append({"from": [operator], "ports": port})
    if settings.monitoring_namespace:
        rules.append({"from": [_namespace(settings.monitoring_namespace)], "ports": port})
    return _policy(job, "trainer", rules)


def _policy(job: GRPOJob, component: labels.Component, rules: list[dict[str, Any]]) -> Manifest:
    name = names.reference(job.metadata.name) if component == "reference" else names.trainer(job.metadata.name)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(job, name, component),
        "spec": {
            "podSelector": {"matchLabels": labels.pods(job, component)},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }


def _pods(job: GRPOJob, component: labels.Component) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": labels.pods(job, component)}}


def _namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: name}}}


def _tcp(port: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port}]
