"""Ends that another attempt can cure: they carry exit code 75."""

from __future__ import annotations

from typing import ClassVar

from grpo_api.exit_codes import ExitCode


class Interruption(Exception):  # noqa: N818  (no error of the job)
    """Base. The message is one sentence for people."""

    exit_code: ClassVar[ExitCode] = ExitCode.RETRY
    reason: ClassVar[str] = "Interrupted"


class PeerLost(Interruption):
    """Another rank is gone, or did not come, or does not answer."""

    reason = "PeerLost"


class ReferenceLost(Interruption):
    """The reference server gave no answer within the whole deadline, retries included."""

    reason = "ReferenceLost"


class HubUnreachable(Interruption):
    """The model or dataset hub did not answer, or was too busy to."""

    reason = "HubUnreachable"

    def __init__(self, field: str, name: str, error: BaseException) -> None:
        super().__init__(
            f"{field}: {name} cannot be read, the hub could not be reached: {' '.join(str(error).split())}"
        )


class Terminated(Interruption):
    """SIGTERM came; the state was saved."""

    reason = "Terminated"


class Superseded(Interruption):
    """A newer attempt of the run has begun: this one must not write any more."""

    reason = "Superseded"
