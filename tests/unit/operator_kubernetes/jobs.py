"""GRPOJobs for the unit tests of the Kubernetes adapter."""

from typing import Any

from grpo_api.v1alpha1 import GRPOJob

UID = "0b599fcc-6b1c-4385-a1e0-d75f878a7a43"


def grpo_job(name: str = "demo", **spec: Any) -> GRPOJob:
    """Return a small job with groups of its spec replaced."""
    return GRPOJob.model_validate(
        {
            "metadata": {"name": name, "namespace": "lab", "uid": UID},
            "spec": {
                "model": {"name": "/models/tiny"},
                "dataset": {"name": "/data/train.jsonl"},
                "rewards": {"functions": [{"function": "accuracy"}]},
                **spec,
            },
        }
    )
