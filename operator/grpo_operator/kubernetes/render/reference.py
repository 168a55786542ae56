"""The Deployment of the reference server."""

from typing import Any

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.kubernetes import labels, names, places
from grpo_operator.kubernetes.settings import Settings
from grpo_operator.state import ReferenceTarget

from .claim import claim_name
from .engines import engine_of
from .meta import Manifest, metadata
from .pod import pod_template

STARTUP_PERIOD = 5
STARTUP_FAILURES = 720
"""An hour to fetch and load the model; faults on the way show in the job's status all the while."""


def reference_deployment(job: GRPOJob, target: ReferenceTarget, settings: Settings) -> Manifest:
    """Return the Deployment; a change of its template replaces pods one by one, without a surge: GPUs are scarce."""
    name = job.metadata.name
    engine = engine_of(job, settings)
    container = {
        "command": list(engine.command),
        "args": list(target.arguments),
        "ports": [{"name": "http", "containerPort": settings.reference_port, "protocol": "TCP"}],
        "startupProbe": {
            "httpGet": {"path": engine.ready, "port": "http"},
            "periodSeconds": STARTUP_PERIOD,
            "failureThreshold": STARTUP_FAILURES,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {
            "httpGet": {"path": engine.ready, "port": "http"},
            "periodSeconds": 5,
            "failureThreshold": 3,
            "timeoutSeconds": 5,
        },
        "livenessProbe": {
            "httpGet": {"path": engine.alive, "port": "http"},
            "periodSeconds": 10,
            "failureThreshold": 6,
            "timeoutSeconds": 10,
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(job, names.reference(name), "reference"),
        "spec": {
            "replicas": target.replicas,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": labels.pods(job, "reference")},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": pod_template(
                job,
                settings,
                "reference",
                engine.image,
                container,
                environment=engine.environment,
                contract=engine.contract,
                security=engine.security,
                **_versions(job),
            ),
        },
    }


def _versions(job: GRPOJob) -> dict[str, Any]:
    """Return volume and mount of the run's files, where the trainer writes new versions of the reference."""
    if job.spec.reference.sync is None:
        return {}
    return {
        "volumes": [{"name": "output", "persistentVolumeClaim": {"claimName": claim_name(job)}}],
        "mounts": [{"name": "output", "mountPath": places.OUTPUT_DIR, "readOnly": True}],
    }
