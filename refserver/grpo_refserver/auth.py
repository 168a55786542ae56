"""The bearer token between the job's pods."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from grpo_refserver.settings import ConfigurationError


class TokenFile:
    """A file that holds the token; read again when it changes, as a mounted Secret does when it is rotated.

    Raises:
        ConfigurationError: the file cannot be read or holds no token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = b""
        self._refresh()

    def allows(self, authorization: str | None) -> bool:
        """Whether the value of an Authorization header carries the token; compared in constant time."""
        self._refresh()
        scheme, _, given = (authorization or "").partition(" ")
        matches = hmac.compare_digest(given.strip().encode(), self._token)
        return scheme.lower() == "bearer" and matches

    def _refresh(self) -> None:
        try:
            status = os.stat(self._path)
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen == self._seen:
                return
            token = self._path.read_bytes().strip()
        except OSError as error:
            if self._seen is not None:
                return  # in the middle of a rotation: the last token stays
            raise ConfigurationError(f"--token-file {self._path} cannot be read: {error.strerror}") from error
        if not token:
            if self._seen is not None:
                return
            raise ConfigurationError(f"--token-file {self._path} is empty: write the token into it")
        self._token, self._seen = token, seen
