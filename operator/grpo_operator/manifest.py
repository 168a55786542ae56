"""Reading a GRPOJob from a YAML file, as YAML 1.2: `1e-6` is a number, `no` is a word."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_api.v1alpha1 import KIND
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

STDIN = "-"


class ManifestError(Exception):
    """A file that holds no GRPOJob; the message says what to do about it."""


@dataclass(frozen=True)
class Manifest:
    """One GRPOJob as it stands in a file, not validated yet."""

    source: str
    """Name of the file."""
    data: dict[str, Any]
    """The object, in plain Python types."""
    nodes: Any
    """The same with positions (ruamel.yaml's round-trip types)."""

    def line(self, path: Sequence[str | int]) -> int | None:
        """Return the line (from 1) where the value at `path` begins, or that of the nearest parent that is there."""
        node: Any = self.nodes
        line = node.lc.line + 1
        for step in path:
            try:
                position = node.lc.item(step) if isinstance(step, int) else node.lc.key(step)
                node = node[step]
            except (KeyError, IndexError, TypeError, AttributeError):
                break
            line = position[0] + 1
        return int(line)


def load(source: str) -> Manifest:
    """Return the GRPOJob in a YAML file (`-`: standard input). Other objects beside it are passed over.

    Raises:
        ManifestError: no such file, no YAML, or not exactly one GRPOJob in it.
    """
    try:
        text = sys.stdin.read() if source == STDIN else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{source}: cannot be read: {error}") from error
    return parse(text, source)


def parse(text: str, source: str = "<text>") -> Manifest:
    """Return the GRPOJob in a YAML text; `source` names it in messages.

    Raises:
        ManifestError: no YAML, or not exactly one GRPOJob in it.
    """
    reader = YAML(typ="rt")
    reader.allow_duplicate_keys = False
    try:
        documents = [document for document in reader.load_all(text) if document is not None]
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise ManifestError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except YAMLError as error:
        raise ManifestError(f"{source}: not valid YAML: {error}") from error
    except RecursionError:
        raise ManifestError(f"{source}: is nested too deeply to be a {KIND}") from None
    jobs = [document for document in documents if isinstance(document, Mapping) and document.get("kind") == KIND]
    if len(jobs) != 1:
        found = ", ".join(_kind(document) for document in documents) or "nothing"
        raise ManifestError(f"{source}: must hold exactly one object of kind {KIND}, but holds {found}")
    return Manifest(source=source, data=_plain(jobs[0]), nodes=jobs[0])


def dump(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return manifests as one YAML text of several documents."""
    from io import StringIO

    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # declared None: keep the order
    writer.width = 4096  # no folding: a path stays one word
    writer.representer.add_representer(str, _represent_text)
    text = StringIO()
    writer.dump_all(objects, text)
    return text.getvalue()


def _represent_text(representer: Any, text: str) -> Any:
    """Lines stay lines: a file in a ConfigMap can be read."""
    return representer.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _kind(document: Any) -> str:
    return str(document.get("kind", "an object without kind")) if isinstance(document, Mapping) else "no object"


def _plain(node: Any) -> Any:
    """Return a node of ruamel's in plain types: what pydantic's strict mode and JSON know."""
    if isinstance(node, Mapping):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    if isinstance(node, bool):
        return bool(node)
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node
