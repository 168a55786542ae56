"""What was applied last, so that an unchanged child costs no call, and a changed one is put back at once."""

import hashlib
import json
from typing import Any, NamedTuple

from .kinds import Kind

Manifest = dict[str, Any]


class Child(NamedTuple):
    """One child by name."""

    kind: Kind
    namespace: str
    name: str


class Applied:
    """Children that are known to be as they should be: what we sent, and the version the API server made of it.

    A watch event with another version than the one we know means that somebody else changed the child (or that the
    event is older than our last call): it is forgotten, and applied again. That is never wrong, at most one call too
    many.
    """

    def __init__(self) -> None:
        self._known: dict[Child, tuple[str, str]] = {}

    def is_current(self, child: Child, manifest: Manifest | None = None) -> bool:
        """Whether the child is there, and as the manifest says (None: whatever it was created with)."""
        known = self._known.get(child)
        return known is not None and (manifest is None or known[0] == _digest(manifest))

    def record(self, child: Child, manifest: Manifest | None, answer: Manifest) -> None:
        """Remember a child as the API server answered it."""
        version = answer["metadata"]["resourceVersion"]
        self._known[child] = (_digest(manifest) if manifest is not None else "", version)

    def heard(self, child: Child, version: str, *, deleted: bool, created_once: bool) -> None:
        """Take note of a watch event. Of children that are created once, only the deletion counts."""
        known = self._known.get(child)
        if known is not None and (deleted or (not created_once and known[1] != version)):
            del self._known[child]

    def forget(self, child: Child) -> None:
        """Look at the child anew next time."""
        self._known.pop(child, None)

    def forget_all(self) -> None:
        """Look at everything anew: the safety net under lost events."""
        self._known.clear()


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
