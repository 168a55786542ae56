"""The ConfigMap that carries the job's configuration into the pods."""

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.environment import config_json
from grpo_operator.kubernetes import names, places

from .meta import Manifest, metadata


def config_map(job: GRPOJob) -> Manifest:
    """Return the ConfigMap with the file that GRPO_CONFIG names."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, names.config(job.metadata.name), "shared"),
        "data": {places.CONFIG_FILE: config_json(job)},
    }
