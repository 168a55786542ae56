"""What a reference server is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grpo_scoring.messages import WireError, check_model, check_version


class ConfigurationError(Exception):
    """The server cannot start with these settings; the message says what to change."""


class HubUnreachable(Exception):  # noqa: N818  (nothing is wrong with the server: another start can cure it)
    """The model hub did not answer, or was too busy to."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The flags of ``grpo-refserver`` (see ``cli.py`` for what each means).

    Raises ConfigurationError where the answers could not carry the names.
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    model_version: str = "base"
    versions_root: Path | None = None
    tensor_parallel_size: int = 1

    host: str = "127.0.0.1"
    port: int = 8000
    token_file: Path | None = None
    grace_period_seconds: float = 25.0

    deterministic: bool = False
    max_batch_tokens: int = 16384
    head_chunk_tokens: int | None = None
    max_queued_tokens: int = 1048576
    max_request_tokens: int | None = None
    max_request_bytes: int | None = None
    max_sequence_length: int | None = None
    request_timeout_seconds: float = 300.0

    def __post_init__(self) -> None:
        for flag, name, check in (
            ("--model", self.model, check_model),
            ("--model-version", self.model_version, check_version),
        ):
            try:
                check(name)
            except WireError as error:
                raise ConfigurationError(f"{flag} {name!r:.600} {error.problem}: every answer carries it") from None

    @property
    def request_tokens(self) -> int:
        """Most tokens of one request: what the queue could hold, where no lower limit is set."""
        return min(self.max_request_tokens or self.max_queued_tokens, self.max_queued_tokens)

    @property
    def request_bytes(self) -> int:
        """Most bytes of one request: enough for ``request_tokens`` ids in JSON, where no limit is set."""
        return self.max_request_bytes or 64 * 1024 + 16 * self.request_tokens
