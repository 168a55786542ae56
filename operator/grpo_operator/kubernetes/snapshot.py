"""Everything the API server knows about one job's children, read at one time. What it means is `observe`'s business."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from grpo_api.v1alpha1 import GRPOJob

from . import kinds, labels, names
from .client import Client
from .kinds import Kind
from .named_objects import NamedObject, is_valid_name, named_objects
from .render import claim_name

Manifest = dict[str, Any]

MAX_EVENT_QUERIES = 8
"""Most objects whose events are read at one time: a gang of a thousand pods waits for one and the same reason."""


@dataclass(frozen=True)
class Snapshot:
    """One job's children as they are; those of an earlier job of the same name are left out."""

    deployment: Manifest | None = None
    jobs: tuple[Manifest, ...] = ()
    pods: tuple[Manifest, ...] = ()
    """Pods of reference and trainer."""
    claim: Manifest | None = None
    """The claim for the output, ours or the user's."""
    missing: tuple[NamedObject, ...] = ()
    """Objects the spec names and that do not exist."""
    events: tuple[Manifest, ...] = ()
    """Warnings about those of the above that wait for something."""


async def read(client: Client, job: GRPOJob) -> Snapshot:
    """Read a job's children.

    Raises:
        ApiError, aiohttp.ClientError, TimeoutError: the API server could not be asked.
    """
    name, namespace = job.metadata.name, job.metadata.namespace
    selector = labels.selector(labels.of_job(job))
    named = named_objects(job)
    children = asyncio.gather(
        client.get(kinds.DEPLOYMENT, namespace, names.reference(name)),
        client.list(kinds.JOB, namespace, labels=selector),
        client.list(kinds.POD, namespace, labels=selector),
        _get(client, kinds.CLAIM, namespace, claim_name(job)),
    )
    there = asyncio.gather(*(_get(client, each.kind, namespace, each.name, metadata_only=True) for each in named))
    (deployment, jobs, pods, claim), found = await asyncio.gather(children, there)
    ours = Snapshot(
        deployment=deployment if deployment and is_owned(deployment, job) else None,
        jobs=tuple(each for each in jobs if is_owned(each, job)),
        pods=tuple(pods),
        claim=claim,
        missing=tuple(each for each, one in zip(named, found, strict=True) if one is None),
    )
    events = await _events(client, namespace, _waiting(ours))
    return replace(ours, events=tuple(events))


async def _get(
    client: Client, kind: Kind, namespace: str, name: str, *, metadata_only: bool = False
) -> Manifest | None:
    """Return an object that the spec names, without asking for one that cannot exist."""
    return await client.get(kind, namespace, name, metadata_only=metadata_only) if is_valid_name(name) else None


def is_owned(child: Manifest, job: GRPOJob) -> bool:
    """Whether the child belongs to this job, and not to an earlier one of its name."""
    owners = child["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == job.metadata.uid for owner in owners)


def _waiting(snapshot: Snapshot) -> Iterable[tuple[Kind, str]]:
    """Yield the objects whose events may tell why they wait."""
    if snapshot.claim and snapshot.claim.get("status", {}).get("phase") == "Pending":
        yield kinds.CLAIM, snapshot.claim["metadata"]["name"]
    for job in snapshot.jobs:
        status = job.get("status", {})
        if not status.get("conditions") and status.get("active", 0) < job["spec"].get("parallelism", 1):
            yield kinds.JOB, job["metadata"]["name"]
    for pod in snapshot.pods:
        status = pod.get("status", {})
        if status.get("phase") == "Pending" and pod["spec"].get("nodeName"):
            yield kinds.POD, pod["metadata"]["name"]


async def _events(client: Client, namespace: str, objects: Iterable[tuple[Kind, str]]) -> list[Manifest]:
    chosen = list(objects)[:MAX_EVENT_QUERIES]
    found = await asyncio.gather(
        *(
            client.list(
                kinds.EVENT,
                namespace,
                fields=f"involvedObject.kind={kind.kind},involvedObject.name={name},type=Warning",
            )
            for kind, name in chosen
        )
    )
    return [event for events in found for event in events]
