"""The reference server as a process, started again when it ends, as a Deployment's pod would be."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import httpx
from grpo_api import env
from grpo_api.progress import Termination

from grpo_operator import reasons
from grpo_operator.local.gang import tail
from grpo_operator.local.process import Process
from grpo_operator.local.run_files import RunFiles, read_termination
from grpo_operator.state import Fault, Reference, ReferenceTarget

_GRACE = 10.0
"""Seconds it has to answer what it accepted."""
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0
"""Seconds before it is started again: doubled each time."""


class ReferenceProcess:
    """One `grpo-refserver`, whatever spec.reference.replicas is: there is no Service to spread requests here."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], files: RunFiles, url: str) -> None:
        self._command, self._environment, self._files, self._url = command, environment, files, url
        self._target: ReferenceTarget | None = None
        self._process: Process | None = None
        self._starts = 0
        self._start_at = 0.0
        self._exit_code: int | None = None
        self._ready = False

    def apply(self, target: ReferenceTarget) -> None:
        """Make it like this; a change of arguments starts it anew."""
        if self._target is not None and target.arguments != self._target.arguments and self._process:
            self._process.terminate(_GRACE)
        self._target = target
        if target.replicas == 0 and self._process:
            self._process.terminate(_GRACE)

    def remove(self) -> None:
        """End it for good."""
        self._target = None
        if self._process:
            self._process.terminate(_GRACE)

    def kill(self) -> None:
        """Kill it if it still runs."""
        if self._process:
            self._process.kill()
            self._process = None

    @property
    def live(self) -> bool:
        """Whether its process runs."""
        return self._process is not None

    def tick(self) -> None:
        """See whether it has ended, start it if it should run, ask whether it is ready."""
        if self._process is not None:
            self._process.tick()
            if not self._process.running:
                self._ended(self._process)
        wanted = self._target is not None and self._target.replicas > 0
        if wanted and self._process is None and time.monotonic() >= self._start_at:
            assert self._target is not None
            command = [*self._command, *self._target.arguments]
            told = self._files.reference_termination_log
            told.unlink(missing_ok=True)
            environment = {**self._environment, env.GRPO_TERMINATION_LOG: str(told)}
            self._process = Process("reference", command, environment, self._files.reference_log)
            self._starts += 1
        self._ready = self._process is not None and not self._process.terminating and self._answers()

    def observe(self) -> Reference:
        """Return the reference server as it is."""
        if self._target is None:
            return Reference(pods=int(self.live))
        crashed = self._exit_code is not None and not self.live
        faults = (
            (Fault(reasons.CRASH_LOOP_BACK_OFF, f"the reference server: {self._termination().message}"),)
            if crashed
            else ()
        )
        return Reference(
            exists=True,
            desired=self._target.replicas,
            ready=self._target.replicas if self._ready else 0,
            pods=int(self.live),
            faults=faults,
            exit_code=self._exit_code if crashed else None,
            termination=self._termination() if crashed else None,
        )

    def _ended(self, process: Process) -> None:
        asked = process.terminating or self._target is None or self._target.replicas == 0
        self._exit_code = None if asked else process.exit_code
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (self._starts - 1))
        self._start_at = time.monotonic() + (0 if asked else wait)
        self._process = None

    def _termination(self) -> Termination:
        """Return what it wrote to its termination log, or else the last line that it printed."""
        told = read_termination(self._files.reference_termination_log)
        return told or Termination(reason=reasons.CRASHED, message=self._last_words(), exit_code=self._exit_code)

    def _last_words(self) -> str:
        last = tail(self._files.reference_log, 1)
        return f"it ended with exit code {self._exit_code}: {last[0] if last else 'it said nothing'}"

    def _answers(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self._url}/readyz", timeout=2, trust_env=False).status_code == httpx.codes.OK
        return False
