"""The operator's own types: what an adapter observes, and what `plan` answers.

No manifest and no command line is in here: the Kubernetes adapter renders the one, the local adapter the other.
All values are immutable; times are aware datetimes in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from grpo_api.progress import Progress, Termination
from grpo_api.v1alpha1 import Status

# --- observed ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """Something that keeps a part from advancing."""

    reason: str
    """A name from `reasons.py`, such as ImagePullBackOff."""
    message: str
    """One sentence for people, with the object it is about (`Secret hf-token has no key token`)."""


@dataclass(frozen=True)
class Pod:
    """One trainer pod (in a local run: one launcher process)."""

    name: str
    index: int
    """Completion index: torchrun's node rank."""
    phase: Literal["pending", "running", "ended"]
    """ended: no process of it runs any more (Kubernetes' Succeeded and Failed)."""
    ready: bool = False
    """Its container is ready."""
    terminating: bool = False
    """It has been asked to end and has not ended yet (deletionTimestamp is set)."""
    fault: Fault | None = None
    """Why it is not running yet."""
    exit_code: int | None = None
    """Exit code of its container, signals as 128 + n; None while it runs, or where none was recorded."""
    oom_killed: bool = False
    """The kernel killed it for memory (reason OOMKilled)."""
    disruption: Fault | None = None
    """It was evicted, preempted, drained, or its node was lost (condition DisruptionTarget): reason and message."""
    termination: Termination | None = None
    """What it wrote to its termination log, if that can be read."""
    ended_at: datetime | None = None
    """When its container ended."""

    @property
    def live(self) -> bool:
        """Whether a process of it may still run, and so hold a rank or write files."""
        return self.phase != "ended"


@dataclass(frozen=True)
class Attempt:
    """One attempt of the trainer gang: an Indexed Job (or a set of processes) and its pods.

    The pods count also where the Job itself is gone: they are found by their labels. The mechanism that runs an
    attempt (the Job controller; the local adapter) ends the whole gang by itself once one pod ended badly.
    """

    number: int
    """From 0."""
    exists: bool
    """Its Job exists and is not being deleted."""
    finished: Literal["Complete", "Failed"] | None = None
    """The Job's own end: Complete only if every pod ended with 0."""
    failure: Fault | None = None
    """The Job's own words for Failed (BackoffLimitExceeded, PodFailurePolicy…)."""
    created_at: datetime | None = None
    """When it was created."""
    pods: tuple[Pod, ...] = ()
    """Its pods, including terminating and ended ones, at most one per index that is live."""
    faults: tuple[Fault, ...] = ()
    """Why pods cannot be made (quota, admission): from the Job's events or conditions."""

    @property
    def live(self) -> tuple[Pod, ...]:
        """Its pods that may still run."""
        return tuple(pod for pod in self.pods if pod.live)


@dataclass(frozen=True)
class Reference:
    """The reference server's Deployment (or process)."""

    exists: bool = False
    """The Deployment exists and is not being deleted."""
    desired: int = 0
    """Replicas it is set to."""
    ready: int = 0
    """Ready pods that run the present template (never those of an older one)."""
    pods: int = 0
    """Pods there are, including terminating ones."""
    faults: tuple[Fault, ...] = ()
    """Why pods are not ready, or cannot be made."""
    exit_code: int | None = None
    """Exit code with which a container of the present template ended last, if one is not running now."""
    termination: Termination | None = None
    """What that container wrote to its termination log."""


@dataclass(frozen=True)
class Places:
    """Where this adapter puts things, as the processes in the pods will see it."""

    output_dir: str
    """Directory of this run's files, `grpo_api.layout.output_dir`."""
    config: str
    """Path of the file that holds `environment.config_json(job)`."""
    token_file: str
    """Path of the bearer token's file."""
    reference_url: str
    """Base URL of the reference server that the operator runs (used only where spec.reference.url is absent)."""
    reference_host: str
    """Address the reference server listens on."""
    reference_port: int
    """Port the reference server listens on."""
    master_addr: str
    """Name or address of rank 0; `{attempt}` in it stands for the number of the attempt."""
    master_port: int
    progress_port: int
    """Port on which rank 0 serves progress."""
    termination_log: str
    """Path of the termination log (the local adapter sets one per pod instead)."""


@dataclass(frozen=True)
class Observed:
    """Everything there is of one job, read afresh; the job itself, with its status, is `plan`'s first argument."""

    places: Places
    reference: Reference = Reference()
    attempts: tuple[Attempt, ...] = ()
    """All attempts of which a Job or a pod is left, in any order."""
    progress: Progress | None = None
    """Last answer of rank 0's /progress, if any; one of an older attempt is ignored."""
    missing: tuple[Fault, ...] = ()
    """Objects that the spec names and that are not there (MissingSecret, MissingClaim, MissingConfigMap…)."""
    claim: Fault | None = None
    """Why the claim for the output is not bound, where that is an error and not just a wait for the first pod."""
    refusals: tuple[Fault, ...] = ()
    """What the API server refused in the last carry-out (quota, webhook, forbidden), the child named in the message;
    empty again once a carry-out went through."""
    terminating: bool = False
    """The namespace is being deleted (or the local run is being ended): nothing may be created."""


# --- planned ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReferenceTarget:
    """The reference server as it shall be."""

    replicas: int
    """0 while the job is suspended."""
    arguments: tuple[str, ...]
    """Arguments of the engine's server."""


@dataclass(frozen=True)
class AttemptTarget:
    """The attempt that shall run. It is created where it does not exist; an existing one is never rewritten."""

    number: int
    replicas: int
    """Pods."""
    environment: Mapping[str, str]
    """The environment contract (grpo_api.env), the same in every pod; the adapter adds PET_NODE_RANK."""


@dataclass(frozen=True)
class Event:
    """One event of the job: a Kubernetes Event, and a line of the operator's log. Together they tell the story."""

    type: Literal["Normal", "Warning"]
    reason: str
    """A name from `reasons.py`."""
    message: str


@dataclass(frozen=True)
class Plan:
    """What shall be. The adapter carries it out in the order of the fields, then writes the status once, then posts
    the events. `None` and `False` mean: leave alone what there is."""

    status: Status
    """The whole new status; it is written if it differs from the job's."""
    prepare: bool = False
    """What all parts need shall be there: config, token, Services, policies, the claim for the output."""
    remove_reference: bool = False
    """The reference server (Deployment, its Service and policy) must go."""
    reference: ReferenceTarget | None = None
    """The reference server shall be like this; None: leave alone."""
    remove_attempts: tuple[int, ...] = ()
    """Attempts that must go: their Job, and their pods with its grace period."""
    attempt: AttemptTarget | None = None
    """The attempt that shall be there; None: none is to be created now."""
    events: tuple[Event, ...] = ()
    look_again: float | None = None
    """Seconds after which to observe and plan again even if nothing is heard; None: only when something changes."""


@dataclass(frozen=True)
class Limits:
    """The waits of the plan, in seconds. Tests make them short."""

    backoff: float = 10
    """Wait before the first restart; doubled with each further one."""
    backoff_max: float = 300
    """Longest wait before a restart."""
    gone: float = 120
    """How long, beyond the grace period, to wait for pods of an ended attempt to be gone before the next one starts
    all the same (an unreachable node never says so)."""
    words: float = 10
    """How long, after a permanent exit code that came without words, to wait for those of the pods that still end."""
    recheck: float = 30
    """Until missing objects and refusals are looked at again."""
    progress: float = 15
    """Least time between two updates of status.progress."""
