"""Core Events about a job, for `kubectl describe`. The same thing said again is counted, not repeated."""

import hashlib
from datetime import UTC, datetime
from typing import Any

from grpo_api.v1alpha1 import GROUP, KIND, VERSION, GRPOJob

from grpo_operator.state import Event

from . import kinds
from .client import ApiError, Client

MAX_MESSAGE = 1024
"""Longest message the API server takes, in bytes."""
COMPONENT = "grpo-operator"


async def post(client: Client, job: GRPOJob, event: Event) -> None:
    """Post an event about the job; one with the same words that is there already is counted up.

    Raises:
        ApiError, aiohttp.ClientError, TimeoutError: the API server did not take it.
    """
    name, namespace = _name(job, event), job.metadata.namespace
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        await client.create(_manifest(job, event, name, now))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        present = await client.get(kinds.EVENT, namespace, name)
        count = (present or {}).get("count", 1) + 1
        await client.patch(kinds.EVENT, namespace, name, {"count": count, "lastTimestamp": now})


def _name(job: GRPOJob, event: Event) -> str:
    """Return a name that the same words about the same job always get."""
    text = "\0".join((job.metadata.uid, event.type, event.reason, event.message))
    return f"{job.metadata.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _manifest(job: GRPOJob, event: Event, name: str, now: str) -> dict[str, Any]:
    message = event.message.encode()
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 3].decode(errors="ignore").encode() + "…".encode()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": job.metadata.namespace},
        "involvedObject": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "uid": job.metadata.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": message.decode(),
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
    }
