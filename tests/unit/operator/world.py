"""A small world for the tests of the plan: jobs, what is observed of them, and a clock."""

from datetime import UTC, datetime, timedelta
from typing import Any

from grpo_api.progress import Progress, Termination
from grpo_api.v1alpha1 import GRPOJob, Status
from grpo_operator.state import Attempt, Fault, Observed, Places, Pod, Reference

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)

PLACES = Places(
    output_dir="/output/demo/uid-1",
    config="/etc/grpo/config.json",
    token_file="/etc/grpo/token",
    reference_url="http://demo-reference:8000",
    reference_host="0.0.0.0",
    reference_port=8000,
    master_addr="demo-trainer-{attempt}-0.demo-trainer",
    master_port=29500,
    progress_port=8080,
    termination_log="/dev/termination-log",
)

READY = Reference(exists=True, desired=1, ready=1, pods=1)
LOADING = Reference(exists=True, desired=1, ready=0, pods=1)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def make_job(status: Status | None = None, **changes: Any) -> GRPOJob:
    """Return a job of two trainer pods; changes are written as `optimization__beta=0`."""
    spec: dict[str, Any] = {
        "model": {"name": "org/model"},
        "dataset": {"name": "org/data"},
        "rewards": {"functions": [{"function": "accuracy"}]},
        "trainer": {"replicas": 2},
    }
    for path, value in changes.items():
        *groups, field = path.split("__")
        at = spec
        for group in groups:
            at = at.setdefault(group, {})
        at[field] = value
    manifest = {"metadata": {"name": "demo", "namespace": "ns", "uid": "uid-1", "generation": 1}, "spec": spec}
    job = GRPOJob.model_validate(manifest)
    return job.model_copy(update={"status": status}) if status is not None else job


def observe(*attempts: Attempt, reference: Reference = READY, **rest: Any) -> Observed:
    return Observed(places=PLACES, reference=reference, attempts=attempts, **rest)


def running_pod(index: int, attempt: int = 0, **rest: Any) -> Pod:
    values: dict[str, Any] = {"phase": "running", "ready": True, **rest}
    return Pod(name=f"demo-trainer-{attempt}-{index}", index=index, **values)


def ended_pod(index: int, code: int | None, attempt: int = 0, **rest: Any) -> Pod:
    return Pod(name=f"demo-trainer-{attempt}-{index}", index=index, phase="ended", exit_code=code, **rest)


def running(number: int = 0) -> Attempt:
    return Attempt(number, exists=True, pods=(running_pod(0, number), running_pod(1, number)))


def failed(number: int, *pods: Pod, exists: bool = True, failure: Fault | None = None) -> Attempt:
    return Attempt(number, exists=exists, finished="Failed", pods=pods, failure=failure)


def complete(number: int = 0) -> Attempt:
    words = Termination(
        reason="Succeeded", message="done", rank=0, exit_code=0, step=5, model_path="/output/demo/uid-1/final"
    )
    pods = (ended_pod(0, 0, number, termination=words), ended_pod(1, 0, number))
    return Attempt(number, exists=True, finished="Complete", pods=pods)


def progress(step: int, attempt: int = 0, **rest: Any) -> Progress:
    values: dict[str, Any] = {"phase": "training", "total_steps": 5, "reward": 0.5, **rest}
    return Progress(attempt=attempt, step=step, **values)
