"""Pruning an OCI layout keeps exactly what named images are made of."""

import json
from pathlib import Path

import pytest

from tools.images import prune_layout


def write_image(layout: Path, name: str, layers: list[str]) -> dict[str, str]:
    """Write one image of made-up digests; return its descriptor in the index."""
    parts = {"config": f"config-{name}", "manifest": f"manifest-{name}"}
    manifest = {
        "config": {"digest": f"sha256:{parts['config']}"},
        "layers": [{"digest": f"sha256:{layer}"} for layer in layers],
    }
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for blob in [parts["config"], *layers]:
        (blobs / blob).touch()
    (blobs / parts["manifest"]).write_text(json.dumps(manifest))
    return {"digest": f"sha256:{parts['manifest']}"}


def test_what_only_an_unnamed_image_uses_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = write_image(tmp_path, "old", ["shared", "old-code"])
    new = write_image(tmp_path, "new", ["shared", "new-code"])
    named = new | {"annotations": {"org.opencontainers.image.ref.name": "localhost/a:dev"}}
    (tmp_path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [old, named]}))

    monkeypatch.setattr("sys.argv", ["prune_layout.py", str(tmp_path)])
    prune_layout.main()

    left = {blob.name for blob in (tmp_path / "blobs" / "sha256").iterdir()}
    assert left == {"shared", "new-code", "config-new", "manifest-new"}
    assert json.loads((tmp_path / "index.json").read_text())["manifests"] == [named]
