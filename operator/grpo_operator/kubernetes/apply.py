"""Carrying out a plan: what must go is deleted, what shall be is applied or created, in the order of the plan's fields.

Service, Deployment, ConfigMap and NetworkPolicy are applied server-side, so that a field of ours that someone edited
comes back. Job, Secret and claim are created once under a name that can be foretold, and never rewritten: that they
exist already is success.
"""

from dataclasses import dataclass
from typing import Any

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator import reasons
from grpo_operator.state import Fault, Plan

from . import kinds, names, render
from .applied import Applied, Child
from .client import ApiError, Client
from .kinds import Kind
from .settings import Settings
from .snapshot import Snapshot, is_owned

Manifest = dict[str, Any]

NAMESPACE_TERMINATING = "NamespaceTerminating"
REFUSALS = frozenset({400, 401, 403, 404, 409, 413, 422})
"""Answers that will not change by asking again at once; any other error is tried again."""


@dataclass(frozen=True)
class Outcome:
    """What came of carrying out a plan."""

    refusals: tuple[Fault, ...] = ()
    """What the API server refused; what comes after it in the plan was left for the next time."""
    terminating: bool = False
    """The namespace is being deleted."""


class RefusedError(Exception):
    """The API server refused a child, in the words of `reasons`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Applier:
    """Carries out plans, one job at a time."""

    def __init__(self, client: Client, settings: Settings, applied: Applied) -> None:
        self._client = client
        self._settings = settings
        self._applied = applied

    async def carry_out(self, job: GRPOJob, plan: Plan, snapshot: Snapshot) -> Outcome:
        """Make the children as the plan says.

        Raises:
            ApiError, aiohttp.ClientError, TimeoutError: the API server failed; the plan is to be made anew.
        """
        try:
            if plan.prepare:
                await self._prepare(job)
            if plan.remove_reference:
                await self._remove_reference(job)
            if plan.reference is not None:
                for manifest in render.reference_children(job, plan.reference, self._settings):
                    await self._apply(job, manifest)
            for number in plan.remove_attempts:
                await self._remove_attempt(job, number, snapshot)
            if plan.attempt is not None:
                self._trust(job, plan.attempt.number, snapshot)
                await self._create(job, render.attempt_job(job, plan.attempt, self._settings))
        except RefusedError as refused:
            return Outcome(refusals=(refused.fault,))
        except ApiError as error:
            if NAMESPACE_TERMINATING in error.causes:
                return Outcome(terminating=True)
            raise
        return Outcome()

    def _trust(self, job: GRPOJob, number: int, snapshot: Snapshot) -> None:
        """Believe the snapshot more than memory: an attempt's Job that is not in it is to be created."""
        name = names.attempt(job.metadata.name, number)
        if all(each["metadata"]["name"] != name for each in snapshot.jobs):
            self._applied.forget(Child(kinds.JOB, job.metadata.namespace, name))

    async def _prepare(self, job: GRPOJob) -> None:
        await self._create(job, render.token_secret(job))
        claim = render.output_claim(job)
        if claim is not None:
            await self._create(job, claim, shared=job.spec.checkpoint.volume.retention == "Retain")
        for manifest in render.prepared(job, self._settings):
            await self._apply(job, manifest)

    async def _create(self, job: GRPOJob, manifest: Manifest, *, shared: bool = False) -> None:
        """Create a child if it is not there; `shared`: it may be an earlier job's, which left it behind."""
        child = _child(manifest)
        if self._applied.is_current(child) and child.kind in kinds.WATCHED:
            return
        present = await self._client.get(*child, metadata_only=True)
        if present is None:
            try:
                present = await self._client.create(manifest)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise self._refusal(child, error) from error
                present = await self._client.get(*child, metadata_only=True)
        if present is None or not (shared or is_owned(present, job)):
            raise RefusedError(_taken(child))
        if not present["metadata"].get("deletionTimestamp"):
            self._applied.record(child, None, present)

    async def _apply(self, job: GRPOJob, manifest: Manifest) -> None:
        child = _child(manifest)
        if self._applied.is_current(child, manifest):
            return
        present = await self._client.get(*child, metadata_only=True)
        if present is not None and not is_owned(present, job):
            raise RefusedError(_taken(child))
        try:
            answer = await self._client.apply(manifest)
        except ApiError as error:
            raise self._refusal(child, error) from error
        self._applied.record(child, manifest, answer)

    async def _remove_reference(self, job: GRPOJob) -> None:
        name = names.reference(job.metadata.name)
        for kind in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.NETWORK_POLICY):
            await self._delete(job, kind, name)

    async def _remove_attempt(self, job: GRPOJob, number: int, snapshot: Snapshot) -> None:
        """Delete an attempt's Job; the garbage collector ends its pods with their grace period.

        Only a Job in the snapshot is deleted: pods whose Job is gone are on their way already.
        """
        name = names.attempt(job.metadata.name, number)
        if any(each["metadata"]["name"] == name for each in snapshot.jobs):
            await self._delete(job, kinds.JOB, name)

    async def _delete(self, job: GRPOJob, kind: Kind, name: str) -> None:
        child = Child(kind, job.metadata.namespace, name)
        present = await self._client.get(*child, metadata_only=True)
        if present is not None and is_owned(present, job) and not present["metadata"].get("deletionTimestamp"):
            await self._client.delete(*child, uid=present["metadata"]["uid"])
        self._applied.forget(child)

    @staticmethod
    def _refusal(child: Child, error: ApiError) -> Exception:
        """Return what to raise for an answer to a create or apply."""
        if error.status not in REFUSALS or NAMESPACE_TERMINATING in error.causes:
            return error
        return RefusedError(reasons.refusal(error.status, f"{child.kind.kind} {child.name}: {error}"))


def _child(manifest: Manifest) -> Child:
    meta = manifest["metadata"]
    return Child(kinds.of(manifest), meta["namespace"], meta["name"])


def _taken(child: Child) -> Fault:
    return Fault(
        reasons.NAME_TAKEN,
        f"{child.kind.kind} {child.name} exists and does not belong to this job: if it is an earlier job's, it goes "
        "by itself; else delete it, or give the job another name",
    )
