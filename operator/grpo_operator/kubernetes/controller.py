"""Reconciling one job: read, observe, plan, carry out, write the status once, tell."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
from grpo_api.progress import Progress
from grpo_api.v1alpha1 import GRPOJob, Status
from pydantic import ValidationError

from grpo_operator.plan import plan
from grpo_operator.state import Fault, Plan

from . import events, kinds, progress
from .applied import Applied
from .apply import Applier
from .client import ApiError, Client
from .invalid import invalid_status
from .observe import observe
from .queue import Key
from .settings import Settings
from .snapshot import Snapshot, read

Manifest = dict[str, Any]

logger = logging.getLogger("grpo.operator")
"""The story: one line per event."""

MAX_ROUNDS = 3
"""Plans made in one go, where carrying one out meets a new refusal."""


@dataclass
class Memory:
    """What is remembered of a job between two looks. Losing it (a restart) costs nothing but a few calls."""

    uid: str
    """The job's: one made anew under the same name is another job."""
    refusals: tuple[Fault, ...] = ()
    terminating: bool = False
    progress: Progress | None = None
    asked_at: float = float("-inf")
    """When rank 0 was asked last (monotonic clock)."""
    asked: str = ""
    """uid of the pod that was asked."""


class Controller:
    """Reconciles jobs by key."""

    def __init__(
        self,
        client: Client,
        http: aiohttp.ClientSession,
        settings: Settings,
        applied: Applied,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._http = http
        self._settings = settings
        self._applier = Applier(client, settings, applied)
        self._now = now
        self._memories: dict[Key, Memory] = {}
        self.phases: dict[Key, str] = {}
        """Phase of every job seen, for the metrics."""

    async def reconcile(self, key: Key) -> float | None:
        """Bring one job forward; return the seconds after which to look again, or None.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: to be tried again.
        """
        raw = await self._client.get(kinds.GRPO_JOB, key.namespace, key.name)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            # Garbage collection does the rest.
            self._memories.pop(key, None)
            self.phases.pop(key, None)
            return None
        try:
            job = GRPOJob.model_validate(raw)
        except ValidationError as error:
            await self._invalid(raw, error)
            return None
        memory = self.memory(key, job.metadata.uid)
        decided = await self._advance(job, memory)
        self.phases[key] = decided.status.phase or ""
        if _dump(decided.status) != _dump(job.status):
            await self._write_status(raw, _dump(decided.status))
            await self._tell(job, decided)
        return decided.look_again

    def memory(self, key: Key, uid: str) -> Memory:
        """Return what is remembered of the job with this uid; what is known of an earlier one of its name goes."""
        known = self._memories.get(key)
        if known is None or known.uid != uid:
            known = self._memories[key] = Memory(uid)
        return known

    async def _advance(self, job: GRPOJob, memory: Memory) -> Plan:
        """Plan and carry out, again if that meets a refusal that the plan did not know of; return the last plan."""
        for _ in range(MAX_ROUNDS):
            snapshot = await read(self._client, job)
            await self._ask(snapshot, memory)
            observed = observe(
                job,
                snapshot,
                self._settings,
                progress=memory.progress,
                refusals=memory.refusals,
                terminating=memory.terminating,
            )
            decided = plan(job, observed, self._now(), self._settings.limits)
            outcome = await self._applier.carry_out(job, decided, snapshot)
            known = (outcome.refusals, outcome.terminating) == (memory.refusals, memory.terminating)
            memory.refusals, memory.terminating = outcome.refusals, outcome.terminating
            if known:
                break
        return decided

    async def _ask(self, snapshot: Snapshot, memory: Memory) -> None:
        """Ask rank 0 for its progress, at most as often as the status shows it."""
        pod = progress.rank_zero(snapshot.pods)
        if pod is None:
            return
        uid, now = pod["metadata"]["uid"], time.monotonic()
        if memory.asked == uid and memory.progress and now - memory.asked_at < self._settings.limits.progress:
            return
        memory.asked, memory.asked_at = uid, now
        answer = await progress.ask(self._http, pod, self._settings.progress_port, self._settings.progress_timeout)
        memory.progress = answer or memory.progress

    async def _invalid(self, raw: Manifest, error: ValidationError) -> None:
        """Say that the job does not fit the models: after an upgrade, or with a CRD of another version."""
        status = invalid_status(raw, error, self._now())
        if status != raw.get("status"):
            await self._write_status(raw, status)
            meta = raw["metadata"]
            logger.warning("%s/%s %s: %s", meta["namespace"], meta["name"], status["reason"], status["message"])

    async def _write_status(self, raw: Manifest, status: Manifest) -> None:
        meta = {key: raw["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
        await self._client.replace_status(
            {"apiVersion": raw["apiVersion"], "kind": raw["kind"], "metadata": meta, "status": status}
        )

    async def _tell(self, job: GRPOJob, decided: Plan) -> None:
        """Log and post the plan's events. The status is written already: what fails here is only said, not retried."""
        for event in decided.events:
            level = logging.WARNING if event.type == "Warning" else logging.INFO
            logger.log(level, "%s/%s %s: %s", job.metadata.namespace, job.metadata.name, event.reason, event.message)
            try:
                await events.post(self._client, job, event)
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                logger.warning("%s/%s: event not posted: %s", job.metadata.namespace, job.metadata.name, error)


def _dump(status: Status) -> Manifest:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
