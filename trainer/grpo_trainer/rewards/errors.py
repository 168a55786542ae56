"""What can go wrong with a reward function."""

from __future__ import annotations

from typing import Literal

from grpo_api.exit_codes import ExitCode

from grpo_trainer.errors import PermanentError

RewardErrorKind = Literal["import", "exception", "timeout", "result", "died"]


class RewardError(PermanentError):
    """A reward function failed.

    `kind` says how: it could not be imported, raised an exception, took too long, returned something that is not
    one number or None per completion, or its process died.
    """

    exit_code = ExitCode.DATA
    reason = "RewardError"

    def __init__(self, function: str, kind: RewardErrorKind, detail: str, traceback: str = "") -> None:
        super().__init__(f"reward function {function}: {detail}")
        self.function = function
        self.kind = kind
        self.detail = detail
        self.traceback = traceback
        """Full traceback of the function, for the log; empty where there is none."""

    @property
    def last_line(self) -> str:
        """The traceback's last line, such as `ValueError: …`; empty where there is none."""
        lines = self.traceback.strip().splitlines()
        return lines[-1] if lines else ""
