"""One attempt as processes: one `grpo-trainer` per trainer pod.

What the Job controller does for a Job is done here.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from grpo_api import env

from grpo_operator.local.process import Process
from grpo_operator.local.run_files import RunFiles, read_termination
from grpo_operator.state import Attempt, AttemptTarget, Pod


class Gang:
    """The processes of one attempt. If one ends badly, the others are asked to end: ranks cannot go on alone."""

    def __init__(
        self,
        target: AttemptTarget,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        files: RunFiles,
        grace: float,
    ) -> None:
        """Start them.

        Args:
            environments: what each pod gets besides the target's environment, by index.
            grace: seconds a process has to save after SIGTERM.
        """
        self.number = target.number
        self.progress_port = int(target.environment[env.GRPO_PROGRESS_PORT])
        self._files, self._grace = files, grace
        self._created_at = datetime.now(UTC)
        self._ended_at: dict[int, datetime] = {}
        self._removed = False
        self._processes: list[Process] = []
        for index in range(target.replicas):
            termination = files.termination_log(self.number, index)
            termination.unlink(missing_ok=True)
            pod_environment = {
                **environments[index],
                **target.environment,
                env.PET_NODE_RANK: str(index),
                env.GRPO_TERMINATION_LOG: str(termination),
            }
            log = files.launcher_log(self.number, index)
            # Its stdout is what its ranks print, and stands in the pod's own log.
            process = Process(f"trainer-{self.number}-{index}", command, pod_environment, log, stdout=False)
            self._processes.append(process)

    def tick(self) -> None:
        """See who has ended, and end the others if it was badly."""
        for index, process in enumerate(self._processes):
            process.tick()
            if not process.running:
                self._ended_at.setdefault(index, datetime.now(UTC))
        if any(process.exit_code for process in self._processes):
            self.terminate()

    def terminate(self, grace: float | None = None) -> None:
        """Ask all to end; they are killed after the grace period."""
        for process in self._processes:
            process.terminate(self._grace if grace is None else grace)

    def remove(self) -> None:
        """End the attempt: it no longer exists, though its processes may need time to save."""
        self._removed = True
        self.terminate()

    def kill(self) -> None:
        """Kill what is left."""
        for process in self._processes:
            process.kill()

    @property
    def live(self) -> bool:
        """Whether a process of it runs."""
        return any(process.running for process in self._processes)

    @property
    def gone(self) -> bool:
        """Whether nothing is left of an attempt that was removed."""
        return self._removed and not self.live

    def observe(self) -> Attempt:
        """Return the attempt as it is."""
        codes = [process.exit_code for process in self._processes]
        failed, complete = any(codes), all(code == 0 for code in codes)
        return Attempt(
            number=self.number,
            exists=not self._removed,
            finished="Failed" if failed else "Complete" if complete else None,
            created_at=self._created_at,
            pods=tuple(self._pod(index, process) for index, process in enumerate(self._processes)),
        )

    def _pod(self, index: int, process: Process) -> Pod:
        running = process.running
        return Pod(
            name=process.name,
            index=index,
            phase="running" if running else "ended",
            ready=running,
            terminating=process.terminating,
            exit_code=process.exit_code,
            termination=None if running else read_termination(self._files.termination_log(self.number, index)),
            ended_at=self._ended_at.get(index),
        )


def tail(path: Path, lines: int, limit: int = 65536) -> list[str]:
    """Return the last lines of a log file, fewer if it is short; nothing if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - limit))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
