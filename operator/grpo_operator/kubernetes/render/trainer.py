"""The Indexed Job of one attempt of the trainer."""

from typing import Any

from grpo_api import env
from grpo_api.exit_codes import PERMANENT
from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.kubernetes import names, places
from grpo_operator.kubernetes.settings import Settings
from grpo_operator.state import AttemptTarget

from .claim import claim_name
from .meta import Manifest, metadata
from .pod import pod_template

INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


def attempt_job(job: GRPOJob, target: AttemptTarget, settings: Settings) -> Manifest:
    """Return the attempt's Job. One pod that ends badly ends the attempt: the Job controller ends the others."""
    name = job.metadata.name
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(job, names.attempt(name, target.number), "trainer", attempt=target.number),
        "spec": {
            "completionMode": "Indexed",
            "completions": target.replicas,
            "parallelism": target.replicas,
            "backoffLimit": 0,
            # Never two pods of one rank at the same time (KEP-3939).
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": "trainer",
                            "operator": "In",
                            "values": sorted(int(code) for code in PERMANENT),
                        },
                    },
                ]
            },
            "template": _template(job, target, settings),
        },
    }


def _template(job: GRPOJob, target: AttemptTarget, settings: Settings) -> dict[str, Any]:
    name = job.metadata.name
    index = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_ANNOTATION}']"}}
    contract: list[dict[str, Any]] = [
        *({"name": key, "value": value} for key, value in sorted(target.environment.items())),
        {"name": env.PET_NODE_RANK, "valueFrom": index},
    ]
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": names.config(name)}},
        {"name": "output", "persistentVolumeClaim": {"claimName": claim_name(job)}},
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "config", "mountPath": places.CONFIG_DIR, "readOnly": True},
        {"name": "output", "mountPath": places.OUTPUT_DIR},
    ]
    code = job.spec.rewards.code_from
    if code is not None:
        volumes.append({"name": "code", "configMap": {"name": code.config_map}})
        mounts.append({"name": "code", "mountPath": places.CODE_DIR, "readOnly": True})
    template = pod_template(
        job,
        settings,
        "trainer",
        settings.trainer_image,
        {
            "command": ["grpo-trainer"],
            "ports": [{"name": "metrics", "containerPort": settings.progress_port, "protocol": "TCP"}],
        },
        contract=contract,
        volumes=volumes,
        mounts=mounts,
        attempt=target.number,
        restartPolicy="Never",
        subdomain=names.trainer(name),
        terminationGracePeriodSeconds=job.spec.trainer.termination_grace_period_seconds,
    )
    if code is not None:
        _prepend_python_path(template["spec"]["containers"][0]["env"])
    return template


def _prepend_python_path(variables: list[dict[str, Any]]) -> None:
    """Put the folder of the reward modules before whatever PYTHONPATH the user set."""
    present = next((entry for entry in variables if entry["name"] == "PYTHONPATH"), None)
    if present is None:
        variables.insert(0, {"name": "PYTHONPATH", "value": places.CODE_DIR})
    elif present.get("value"):
        present["value"] = f"{places.CODE_DIR}:{present['value']}"
