"""GRPOJobs of the tests."""

import copy
from typing import Any

Manifest = dict[str, Any]

SPEC: Manifest = {
    "model": {"name": "/models/tiny"},
    "dataset": {"name": "/data/train.jsonl"},
    "rewards": {"functions": [{"function": "accuracy"}]},
    "trainer": {"replicas": 2},
    "checkpoint": {"volume": {"claimTemplate": {"storage": "1Gi"}}},
}


def merge(base: Manifest, changes: Manifest) -> Manifest:
    """Return `base` with `changes` merged in; a None takes the field away."""
    merged = copy.deepcopy(base)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def grpo_job(name: str = "demo", **spec: Any) -> Manifest:
    """Return a small valid job with changes merged into its spec."""
    return {
        "apiVersion": "grpo.dev/v1alpha1",
        "kind": "GRPOJob",
        "metadata": {"name": name},
        "spec": merge(SPEC, spec),
    }
