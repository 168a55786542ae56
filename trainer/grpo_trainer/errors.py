"""Errors that another attempt cannot cure. Each carries the exit code and the reason the operator reports."""

from __future__ import annotations

from typing import ClassVar

from grpo_api.exit_codes import ExitCode


class PermanentError(Exception):
    """Base: what is wrong lies in the job, not in the machine. The message is one sentence for people."""

    exit_code: ClassVar[ExitCode] = ExitCode.CONFIGURATION
    reason: ClassVar[str] = "ConfigurationError"


class ConfigurationError(PermanentError):
    """A setting cannot work."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class DatasetError(PermanentError):
    """The dataset cannot be read, or is not what the spec says."""

    exit_code = ExitCode.DATA
    reason = "DatasetError"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
