"""Metadata of a child: name, labels, owner."""

from typing import Any

from grpo_api.v1alpha1 import GROUP, KIND, VERSION, GRPOJob

from grpo_operator.kubernetes import labels

Manifest = dict[str, Any]


def metadata(
    job: GRPOJob, name: str, component: labels.Component, *, attempt: int | None = None, owned: bool = True
) -> dict[str, Any]:
    """Return a child's metadata. An owned child is collected by Kubernetes once the job is deleted."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": labels.child(job, component, attempt),
    }
    if owned:
        meta["ownerReferences"] = [owner_reference(job)]
    return meta


def owner_reference(job: GRPOJob) -> dict[str, Any]:
    """Return the reference to the job. It does not block a foreground deletion: that would need one more right."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
    }
