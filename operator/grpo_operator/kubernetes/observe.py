"""From a snapshot of the API server's objects to the operator's own types. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from grpo_api.progress import Progress
from grpo_api.v1alpha1 import GRPOJob

from grpo_operator import reasons
from grpo_operator.state import Attempt, Fault, Observed, Pod, Reference

from . import labels, observe_pod
from .places import places
from .settings import Settings
from .snapshot import Snapshot

Manifest = dict[str, Any]


def observe(
    job: GRPOJob,
    snapshot: Snapshot,
    settings: Settings,
    *,
    progress: Progress | None = None,
    refusals: tuple[Fault, ...] = (),
    terminating: bool = False,
) -> Observed:
    """Return what there is of the job.

    Args:
        job: the job.
        snapshot: its children.
        settings: the installation's.
        progress: rank 0's last answer.
        refusals: what the API server refused when the plan was last carried out.
        terminating: the namespace is being deleted.
    """
    events = EventsByObject(snapshot.events)
    return Observed(
        places=places(job, settings),
        reference=_reference(snapshot, events),
        attempts=_attempts(snapshot, events),
        progress=progress,
        missing=(*(each.missing() for each in snapshot.missing), *_not_shared(job, snapshot.claim)),
        claim=_claim(snapshot.claim, events),
        refusals=refusals,
        terminating=terminating,
    )


class EventsByObject:
    """Warnings by the object they are about."""

    def __init__(self, events: Iterable[Manifest]) -> None:
        self._events: dict[tuple[str, str], list[Manifest]] = {}
        for event in events:
            about = event["involvedObject"]
            self._events.setdefault((about["kind"], about["name"]), []).append(event)

    def faults(self, kind: str, name: str, *wanted: str) -> tuple[Fault, ...]:
        """Return the warnings about an object that have one of the reasons wanted, the newest first."""
        events = [event for event in self._events.get((kind, name), ()) if event.get("reason") in wanted]
        events.sort(key=_when, reverse=True)
        return tuple(Fault(event["reason"], f"{kind} {name}: {event.get('message', '')}") for event in events)


def _when(event: Manifest) -> str:
    """Return when an event was seen last, as sortable text."""
    series = event.get("series") or {}
    return series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""


def _attempts(snapshot: Snapshot, events: EventsByObject) -> tuple[Attempt, ...]:
    pods: dict[int, list[Pod]] = {}
    for raw in _of_component(snapshot.pods, "trainer"):
        pods.setdefault(_number(raw), []).append(observe_pod.trainer_pod(raw, events))
    jobs = {_number(raw): raw for raw in snapshot.jobs}
    return tuple(_attempt(number, jobs.get(number), pods.get(number, []), events) for number in sorted({*jobs, *pods}))


def _attempt(number: int, job: Manifest | None, pods: list[Pod], events: EventsByObject) -> Attempt:
    if job is None:
        return Attempt(number=number, exists=False, pods=tuple(pods))
    # A Job that is bound to fail says FailureTarget first, and Failed once its last pod has ended.
    complete = _condition(job, "Complete")
    failed = _condition(job, "Failed") or _condition(job, "FailureTarget")
    name = job["metadata"]["name"]
    failure = Fault(failed["reason"], f"Job {name}: {failed.get('message', '')}") if failed else None
    return Attempt(
        number=number,
        exists=job["metadata"].get("deletionTimestamp") is None,
        finished="Complete" if complete else "Failed" if failed else None,
        failure=failure,
        created_at=time(job["metadata"]["creationTimestamp"]),
        pods=tuple(pods),
        faults=tuple(_creation(fault) for fault in events.faults("Job", name, "FailedCreate")[:1]),
    )


def _reference(snapshot: Snapshot, events: EventsByObject) -> Reference:
    pods = list(_of_component(snapshot.pods, "reference"))
    deployment = snapshot.deployment
    if deployment is None or deployment["metadata"].get("deletionTimestamp"):
        return Reference(pods=len(pods))
    status = deployment.get("status", {})
    current = status.get("observedGeneration") == deployment["metadata"]["generation"]
    # Ready pods may be of an older template: as many as are not updated are not counted.
    older = status.get("replicas", 0) - status.get("updatedReplicas", 0)
    ready = max(0, status.get("readyReplicas", 0) - older) if current else 0
    faults = [fault for pod in pods for fault in observe_pod.faults(pod, events)]
    blocked = _condition(deployment, "ReplicaFailure")
    if blocked:
        faults.append(_creation(Fault(reasons.FAILED_CREATE, f"Deployment: {blocked.get('message', '')}")))
    ended = observe_pod.last_end(pods)
    return Reference(
        exists=True,
        desired=deployment["spec"].get("replicas", 1),
        ready=ready,
        pods=len(pods),
        faults=tuple(faults),
        exit_code=ended.exit_code if ended else None,
        termination=ended.termination if ended else None,
    )


def _creation(fault: Fault) -> Fault:
    """Return why pods cannot be made in the words of `reasons`, where the controller's message tells it."""
    if "serviceaccount" in fault.message and "not found" in fault.message:
        return Fault(reasons.MISSING_SERVICE_ACCOUNT, fault.message)
    named = reasons.refusal(403, fault.message)
    return fault if named.reason == reasons.FORBIDDEN else named


def _claim(claim: Manifest | None, events: EventsByObject) -> Fault | None:
    if claim is None:
        return None
    name, phase = claim["metadata"]["name"], claim.get("status", {}).get("phase")
    if phase == "Lost":
        return Fault(reasons.CLAIM_LOST, f"PersistentVolumeClaim {name} has lost its volume")
    if phase == "Pending":
        return next(iter(events.faults("PersistentVolumeClaim", name, "ProvisioningFailed")), None)
    return None


def _not_shared(job: GRPOJob, claim: Manifest | None) -> Iterable[Fault]:
    """Yield the fault of a claim that only one pod may mount, where several must.

    ReadWriteOnce is none: its pods may share a node. Where they do not, FailedAttachVolume says so.
    """
    modes = (claim or {}).get("spec", {}).get("accessModes", [])
    if job.spec.shares_output and set(modes) == {"ReadWriteOncePod"}:
        assert claim is not None
        yield Fault(
            reasons.CLAIM_NOT_SHARED,
            f"PersistentVolumeClaim {claim['metadata']['name']} admits one pod (ReadWriteOncePod), but reference and "
            "trainer pods must mount it together: name one with ReadWriteMany in checkpoint.volume",
        )


def _of_component(pods: Iterable[Manifest], component: labels.Component) -> Iterable[Manifest]:
    return (pod for pod in pods if pod["metadata"]["labels"].get(labels.COMPONENT) == component)


def _number(child: Manifest) -> int:
    return int(child["metadata"]["labels"].get(labels.ATTEMPT, 0))


def _condition(child: Manifest, kind: str) -> Manifest | None:
    """Return the condition of this type, if it holds."""
    conditions = child.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind and each["status"] == "True"), None)


def time(text: str) -> datetime:
    """Return a time as the API server writes it (RFC 3339, UTC)."""
    return datetime.fromisoformat(text)
