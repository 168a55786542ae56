"""Jobs that the end-to-end tests run: the quickstart's model and task in a volume, and what a run leaves there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.support import Kubectl, Volume

ROOT = Path(__file__).resolve().parents[2]
MOUNT = "/data"
"""Where the volume with model and prompts is mounted in trainer and reference pods."""


def prepare(volume: Volume) -> None:
    """Put the quickstart's model and prompts into the volume."""
    command = [sys.executable, str(ROOT / "examples/quickstart/prepare.py"), str(volume.folder / "sorting")]
    subprocess.run(command, check=True, capture_output=True, text=True)


def reward_code(kubectl: Kubectl) -> None:
    """Make the ConfigMap `rewards` with the quickstart's reward function, as a user would."""
    kubectl("create", "configmap", "rewards", f"--from-file={ROOT / 'examples/quickstart/sorting.py'}")


def sorting_job(volume: Volume, name: str = "sorting", **groups: Mapping[str, Any]) -> dict[str, Any]:
    """A GRPOJob of the quickstart's task on two trainer pods; `groups` are merged over its spec, field by field.

    The learning rate is large and each batch is trained on twice, so that a difference between two runs would show.
    """
    spec: dict[str, Any] = {
        "model": {"name": f"{MOUNT}/sorting/model", "dtype": "float32"},
        "hub": {"offline": True},
        "dataset": {"name": f"{MOUNT}/sorting/train.jsonl", "maxPromptLength": 8},
        "rewards": {"functions": [{"function": "sorting:exact"}], "codeFrom": {"configMap": "rewards"}},
        "generation": {"numGenerations": 8, "maxCompletionLength": 4},
        "optimization": {
            "lossType": "grpo",
            "learningRate": 1e-3,
            "lrSchedulerType": "constant",
            "numIterations": 2,
            "perDeviceTrainBatchSize": 16,
            "maxSteps": 5,
            "gradientCheckpointing": False,
        },
        "reference": {"resources": {"requests": {"memory": "1Gi"}}},
        "trainer": {"replicas": 2, "resources": {"requests": {"memory": "1Gi"}}},
        "checkpoint": {"everySteps": 2, "volume": {"claimName": volume.claim}},
        "logging": {"completions": True},
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": volume.claim}}],
        "volumeMounts": [{"name": "data", "mountPath": MOUNT}],
    }
    for group, fields in groups.items():
        spec[group] = {**spec.get(group, {}), **fields} if isinstance(fields, Mapping) else fields
    return {"apiVersion": "grpo.dev/v1alpha1", "kind": "GRPOJob", "metadata": {"name": name}, "spec": spec}


def example(name: str) -> dict[str, Any]:
    """A manifest of examples/, as a user would copy it."""
    manifest: dict[str, Any] = yaml.safe_load((ROOT / "examples" / name).read_text())
    return manifest


def output(kubectl: Kubectl, volume: Volume, name: str) -> Path:
    """The folder of a job's run, as the test reaches it."""
    uid = kubectl.get("grpo", name)["metadata"]["uid"]
    return volume.folder / name / uid


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def condition(job: Mapping[str, Any], kind: str) -> str | None:
    """The status of one condition of a job."""
    conditions = job.get("status", {}).get("conditions", [])
    return next((str(c["status"]) for c in conditions if c["type"] == kind), None)
