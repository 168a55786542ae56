"""The folder of a version, looked at before anything is loaded from it.

A path comes over the network: it may name nothing outside the root for versions, neither by ``..`` nor by a
symbolic link, and nothing that would run code (pickles) or load something else (an adapter's base model).
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from grpo_refserver.engine import Refusal, VersionError

_CONFIG, _INDEX, _ADAPTER = "config.json", "model.safetensors.index.json", "adapter_config.json"
_MAX_JSON_BYTES = 64 * 2**20
"""An index has a line per tensor: the largest models' are some MB."""
_PASSING = frozenset((errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY, errno.EMFILE, errno.ENOMEM))
"""Errors of a file system that can pass."""


def version_folder(root: Path | None, version: str, path: Path | None) -> Path:
    """The real path of a version's folder, which holds a whole model in safetensors as far as can be seen.

    Args:
        root: no version outside of it; None allows none.
        version: its name.
        path: absolute, or relative to ``root``; None names no folder.

    Raises:
        VersionError: UNKNOWN without a path or a root, UNAVAILABLE where the folder is not to be seen (yet) or
            cannot be read now, BAD for anything else.
    """
    if path is None:
        raise VersionError(
            f"version {version} is not loaded, and the request does not say where it lies: send versionPath",
            Refusal.UNKNOWN,
            "version",
        )
    if root is None:
        raise VersionError(
            f"version {version} is wanted, and this server loads no versions: start it with --versions-root",
            Refusal.UNKNOWN,
            "version",
        )
    with passing_errors(path):
        folder = _below(root, path)
        _check_files(folder, Path(os.path.realpath(root)))
    return folder


@contextmanager
def passing_errors(path: Path | str) -> Iterator[None]:
    """Turns what a file system may fail with into a VersionError that says whether trying again can help."""
    try:
        yield
    except OSError as error:
        refusal = Refusal.UNAVAILABLE if error.errno in _PASSING else Refusal.BAD
        raise VersionError(f"{path} cannot be read: {error.strerror or error}", refusal) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises VersionError where there is none."""
    if path.stat().st_size > _MAX_JSON_BYTES:
        raise VersionError(f"{path} is larger than {_MAX_JSON_BYTES} bytes")
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise VersionError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise VersionError(f"{path} holds no JSON object")
    return content


def _below(root: Path, path: Path) -> Path:
    """The real path. The name is judged first, so that nothing is told about what lies elsewhere."""
    inside = os.path.normpath(root / path)
    real_root, real = os.path.realpath(root), os.path.realpath(inside)
    if ".." in path.parts or not _is_below(inside, os.path.normpath(root), real_root):
        raise VersionError(f"{path} is outside --versions-root {root}: write versions below it")
    if not _is_below(real, real_root):
        raise VersionError(f"{path} leads out of --versions-root {root} by a symbolic link: write real folders")
    if not os.path.isdir(real):
        if os.path.lexists(real):
            raise VersionError(f"{path} is no folder: name the one with config.json and model.safetensors")
        raise VersionError(
            f"there is no folder {path} (yet): a shared volume may show it later; if it stays so, is it written "
            "there, and is the volume mounted here?",
            Refusal.UNAVAILABLE,
        )
    return Path(real)


def _is_below(path: str, *roots: str) -> bool:
    return any(PurePath(root) in PurePath(path).parents for root in roots)


def _check_files(folder: Path, root: Path) -> None:
    names = {entry.name for entry in folder.iterdir()}
    for name in sorted(names):
        if not _is_below(os.path.realpath(folder / name), str(root)):
            raise VersionError(f"{name} in {folder} leads out of --versions-root by a symbolic link")
    if _ADAPTER in names:
        raise VersionError(f"{folder} holds an adapter: merge it into the model, and save that")
    if _CONFIG not in names:
        raise VersionError(
            f"{folder} has no {_CONFIG}: write it as save_pretrained does, and rename it when it is whole"
        )
    if _INDEX in names:
        for shard in sorted(set(map(str, (read_json(folder / _INDEX).get("weight_map") or {}).values()))):
            if shard not in names:  # also refuses a path
                raise VersionError(f"{_INDEX} in {folder} names {shard}, which is not there")
    elif "model.safetensors" not in names:
        pickles = sorted(name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt")))
        found = f"only {', '.join(pickles)}, which are pickles: save with safetensors" if pickles else "no weights"
        raise VersionError(f"{folder} has no model.safetensors, {found}")
