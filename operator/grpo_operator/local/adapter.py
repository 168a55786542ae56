"""Observe and carry out with local processes: what the Kubernetes adapter does with the API server."""

import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from grpo_api.progress import Progress
from grpo_api.v1alpha1 import GRPOJob
from pydantic import ValidationError

from grpo_operator.local import environs
from grpo_operator.local.gang import Gang
from grpo_operator.local.reference import ReferenceProcess
from grpo_operator.local.run_files import RunFiles
from grpo_operator.state import Observed, Places, Plan

_HOST = "127.0.0.1"
_PROGRESS_EVERY = 1.0
"""Seconds between two questions to rank 0."""


@dataclass(frozen=True)
class Programs:
    """What is started for a pod."""

    trainer: tuple[str, ...]
    reference: tuple[str, ...]

    @staticmethod
    def installed(job: GRPOJob) -> "Programs":
        """Return the installed programs that the job needs, those of this environment first.

        Raises:
            LocalRunError: a part is not installed, or not for a local run.
        """
        engine = job.spec.reference.engine
        if job.spec.runs_reference and engine != "transformers":
            raise environs.LocalRunError(
                f"reference.engine {engine} is not started in a local run: start its server yourself and give its "
                "address as reference.url, or use engine transformers"
            )
        return Programs(trainer=(_find("grpo-trainer"),), reference=(_find("grpo-refserver"),))


class LocalAdapter:
    """One job on this machine."""

    def __init__(
        self, job: GRPOJob, files: RunFiles, programs: Programs, own: Mapping[str, str], reward_paths: Sequence[Path]
    ) -> None:
        """`own`: the environment that the processes inherit.

        Raises:
            LocalRunError: the machine is too small.
        """
        self._job, self._files, self._programs = job, files, programs
        base = environs.base(job, own, reward_paths)
        trainer_devices, reference_device = environs.devices(job, own)
        trainer_variables = environs.variables(job, job.spec.trainer.pod.env)
        self._trainer_environments = [{**base, **trainer_variables, **device} for device in trainer_devices]
        port = free_port()
        self._reference_url = f"http://{_HOST}:{port}"
        self._reference_port = port
        self._reference = ReferenceProcess(
            programs.reference,
            {**base, **environs.variables(job, job.spec.reference.pod.env), **reference_device},
            files,
            self._reference_url,
        )
        self._gangs: dict[int, Gang] = {}
        self._progress: Progress | None = None
        self._ask_at = 0.0
        self._ports = (free_port(), free_port())

    def tick(self) -> None:
        """See what has happened: processes that ended, the reference's readiness, the trainer's progress."""
        self._reference.tick()
        for gang in self._gangs.values():
            gang.tick()
        self._gangs = {number: gang for number, gang in self._gangs.items() if not gang.gone}
        newest = max(self._gangs, default=None)
        if newest is not None and self._gangs[newest].live and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + _PROGRESS_EVERY
            self._progress = _ask_progress(self._gangs[newest].progress_port) or self._progress

    def observe(self) -> Observed:
        """Return everything there is."""
        master_port, progress_port = self._ports
        return Observed(
            places=Places(
                output_dir=str(self._files.folder),
                config=str(self._files.config),
                token_file=str(self._files.token),
                reference_url=self._reference_url,
                reference_host=_HOST,
                reference_port=self._reference_port,
                master_addr=_HOST,
                master_port=master_port,
                progress_port=progress_port,
                termination_log="",  # one per pod: the gang sets it
            ),
            reference=self._reference.observe(),
            attempts=tuple(gang.observe() for gang in self._gangs.values()),
            progress=self._progress,
        )

    def carry_out(self, plan: Plan) -> None:
        """Make it so; the status is the runner's to save."""
        if plan.prepare:
            self._files.prepare(self._job)
        if plan.remove_reference:
            self._reference.remove()
        if plan.reference is not None:
            self._reference.apply(plan.reference)
        for number in plan.remove_attempts:
            if number in self._gangs:
                self._gangs[number].remove()
        target = plan.attempt
        if target is not None and target.number not in self._gangs:
            grace = self._job.spec.trainer.termination_grace_period_seconds
            self._gangs[target.number] = Gang(
                target, self._programs.trainer, self._trainer_environments, self._files, grace
            )
            self._ports = (free_port(), free_port())

    @property
    def live(self) -> bool:
        """Whether any process runs."""
        return self._reference.live or any(gang.live for gang in self._gangs.values())

    def end(self) -> None:
        """Ask the trainer to save and end; the reference serves it until then."""
        for gang in self._gangs.values():
            gang.remove()
        if not any(gang.live for gang in self._gangs.values()):
            self._reference.remove()

    def kill(self) -> None:
        """Kill everything that is left."""
        for gang in self._gangs.values():
            gang.kill()
        self._reference.kill()

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until everything asked to end has ended, at most this long; return whether it has."""
        deadline = time.monotonic() + seconds
        while self.live and time.monotonic() < deadline:
            self.end()
            self.tick()
            time.sleep(0.1)
        return not self.live


def free_port() -> int:
    """Return a loopback port that is free now. If another program takes it first, the attempt fails and starts anew."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _ask_progress(port: int) -> Progress | None:
    try:
        answer = httpx.get(f"http://{_HOST}:{port}/progress", timeout=2, trust_env=False)
        return Progress.model_validate_json(answer.raise_for_status().content)
    except (httpx.HTTPError, ValidationError):
        return None


def _find(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        extra = name.removeprefix("grpo-")
        raise environs.LocalRunError(f"{name} is not installed: pip install 'grpo-kubernetes[{extra}]'")
    return found
