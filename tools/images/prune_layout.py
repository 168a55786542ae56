"""Delete from an OCI layout the manifests that lost their name to a newer image, and blobs of no manifest.

usage: prune_layout.py LAYOUT
"""

import json
import sys
from pathlib import Path
from typing import Any


def digests(layout: Path, descriptor: dict[str, Any]) -> set[str]:
    """The digests of a manifest and of all that it names."""
    manifest = json.loads((layout / "blobs" / descriptor["digest"].replace(":", "/")).read_text())
    return {descriptor["digest"], *(d["digest"] for d in [manifest["config"], *manifest["layers"]])}


def main() -> None:
    """Rewrite the index, then delete the blobs."""
    layout = Path(sys.argv[1])
    index = json.loads((layout / "index.json").read_text())
    index["manifests"] = [m for m in index["manifests"] if m.get("annotations")]
    rewritten = layout / "index.json.new"
    rewritten.write_text(json.dumps(index))
    rewritten.replace(layout / "index.json")
    used = {digest for manifest in index["manifests"] for digest in digests(layout, manifest)}
    for blob in (layout / "blobs" / "sha256").iterdir():
        if f"sha256:{blob.name}" not in used:
            blob.unlink()


if __name__ == "__main__":
    main()
