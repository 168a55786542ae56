"""What one pod is doing, why it does not, and what it ended with. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from grpo_api.progress import Termination
from pydantic import ValidationError

from grpo_operator import reasons
from grpo_operator.state import Fault, Pod

Manifest = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
HARMLESS = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of a waiting container that only mean: a moment, please."""
EVENTS = ("FailedAttachVolume", "FailedMount", "FailedCreatePodSandBox")
"""Events that tell why a pod does not get beyond ContainerCreating."""


class Events(Protocol):
    """Warnings by object."""

    def faults(self, kind: str, name: str, *wanted: str) -> tuple[Fault, ...]:
        """Return the warnings about one object."""


@dataclass(frozen=True)
class End:
    """How a container ended."""

    exit_code: int
    oom_killed: bool
    termination: Termination | None
    at: datetime | None


def trainer_pod(pod: Manifest, events: Events) -> Pod:
    """Return a trainer pod as the plan sees it."""
    meta, status = pod["metadata"], pod.get("status", {})
    phase = status.get("phase", "Pending")
    end = _end(_container(pod).get("state", {}))
    return Pod(
        name=meta["name"],
        index=int((meta.get("annotations") or {}).get(INDEX, 0)),
        phase="ended" if phase in ("Succeeded", "Failed") else "pending" if phase == "Pending" else "running",
        ready=bool(_container(pod).get("ready")),
        terminating=meta.get("deletionTimestamp") is not None,
        fault=reasons.first(faults(pod, events)),
        exit_code=end.exit_code if end else None,
        oom_killed=bool(end and end.oom_killed),
        disruption=_disruption(pod),
        termination=end.termination if end else None,
        ended_at=end.at if end else None,
    )


def faults(pod: Manifest, events: Events) -> tuple[Fault, ...]:
    """Return why a pod does not run, where that is more than a moment's wait."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    found: list[Fault] = []
    waiting = _container(pod).get("state", {}).get("waiting") or {}
    reason = waiting.get("reason")
    if reason and reason not in HARMLESS:
        found.append(Fault(reason, f"pod {name}: {waiting.get('message') or reason}"))
    scheduled = _condition(pod, "PodScheduled")
    if scheduled and scheduled["status"] == "False" and scheduled.get("reason") == "Unschedulable":
        found.append(Fault(reasons.UNSCHEDULABLE, f"pod {name}: {scheduled.get('message', '')}"))
    if status.get("phase") == "Pending" and not found:
        found += events.faults("Pod", name, *EVENTS)[:1]
    return tuple(found)


def last_end(pods: Iterable[Manifest]) -> End | None:
    """Return how a container ended last, among those that do not run now."""
    ends = []
    for pod in pods:
        container = _container(pod)
        state = container.get("state", {})
        if "running" not in state:
            ends.append(_end(state) or _end(container.get("lastState", {})))
    known = [end for end in ends if end is not None and end.at is not None]
    return max(known, key=lambda end: end.at or datetime.min, default=None)


def _container(pod: Manifest) -> Manifest:
    """Return the status of the pod's container; empty before the kubelet has written one."""
    name = pod["spec"]["containers"][0]["name"]
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return next((each for each in statuses if each["name"] == name), {})


def _end(state: Manifest) -> End | None:
    ended = state.get("terminated")
    if not ended:
        return None
    finished = ended.get("finishedAt")
    return End(
        exit_code=ended.get("exitCode", 0),
        oom_killed=ended.get("reason") == "OOMKilled",
        termination=_termination(ended.get("message") or ""),
        at=datetime.fromisoformat(finished) if finished else None,
    )


def _termination(text: str) -> Termination | None:
    """Return the reason a process wrote to its termination log; None where it did not, or was killed while writing.

    What is no JSON is the end of its output (terminationMessagePolicy FallbackToLogsOnError): the last line counts.
    """
    try:
        return Termination.model_validate_json(text)
    except ValidationError:
        lines = [] if text.lstrip().startswith(("{", "[")) else [line for line in text.splitlines() if line.strip()]
        return Termination(reason=reasons.CRASHED, message=lines[-1].strip()) if lines else None


def _disruption(pod: Manifest) -> Fault | None:
    """Return why the pod was ended from outside (condition DisruptionTarget, KEP-3329)."""
    condition = _condition(pod, "DisruptionTarget")
    if condition is None or condition["status"] != "True":
        return None
    reason = condition.get("reason") or ""
    message = f"pod {pod['metadata']['name']}: {condition.get('message') or reason}"
    return Fault(reason if reason in reasons.REASONS else reasons.DISRUPTED, message)


def _condition(pod: Manifest, kind: str) -> Manifest | None:
    conditions = pod.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), None)
