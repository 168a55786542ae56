"""The claim for a run's files."""

from typing import Any

from grpo_api.v1alpha1 import ClaimTemplate, GRPOJob
from grpo_api.v1alpha1.lifecycle import AccessMode

from grpo_operator.kubernetes import names

from .meta import Manifest, metadata


def output_claim(job: GRPOJob) -> Manifest | None:
    """Return the claim to create, or None where the spec names an existing one.

    It belongs to the job only with `retention: Delete`: deleting a job never deletes a trained model unasked.
    """
    volume = job.spec.checkpoint.volume
    if volume.claim_name is not None:
        return None
    template = volume.claim_template or ClaimTemplate()
    default: AccessMode = "ReadWriteMany" if job.spec.shares_output else "ReadWriteOnce"
    spec: dict[str, Any] = {
        "accessModes": list(template.access_modes or [default]),
        "resources": {"requests": {"storage": template.storage}},
    }
    if template.storage_class_name is not None:
        spec["storageClassName"] = template.storage_class_name
    name = names.output(job.metadata.name)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(job, name, "shared", owned=volume.retention == "Delete"),
        "spec": spec,
    }


def claim_name(job: GRPOJob) -> str:
    """Return the name of the claim that holds the run's files."""
    return job.spec.checkpoint.volume.claim_name or names.output(job.metadata.name)
