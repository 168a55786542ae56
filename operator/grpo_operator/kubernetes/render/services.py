"""The Services: one before the reference pods, and a headless one that gives the trainer pods their names."""

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.kubernetes import labels, names
from grpo_operator.kubernetes.settings import Settings

from .meta import Manifest, metadata


def reference_service(job: GRPOJob, settings: Settings) -> Manifest:
    """Return the Service before the ready reference pods."""
    name = job.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, names.reference(name), "reference"),
        "spec": {
            "selector": labels.pods(job, "reference"),
            "ports": [
                {"name": "http", "protocol": "TCP", "port": settings.reference_port, "targetPort": "http"},
            ],
        },
    }


def trainer_service(job: GRPOJob, settings: Settings) -> Manifest:
    """Return the headless Service of the trainer pods: each gets the DNS name `<pod's host name>.<service>`.

    Names are there before pods are ready, as ranks look for rank 0 while they start.
    """
    name = job.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, names.trainer(name), "trainer"),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels.pods(job, "trainer"),
            "ports": [
                {"name": "metrics", "protocol": "TCP", "port": settings.progress_port, "targetPort": "metrics"},
            ],
        },
    }
