"""Load images from an OCI layout into containerd, sending only the blobs that it lacks.

usage: import_images.py LAYOUT [IMAGE…]    (CONTAINERD_ADDRESS and CONTAINERD_NAMESPACE as for ctr)
"""

import io
import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

NAME = "org.opencontainers.image.ref.name"


def ctr(*args: str) -> list[str]:
    """Run ctr and return its lines."""
    return subprocess.run(["ctr", *args], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def blob(layout: Path, digest: str) -> Path:
    """The file of a blob."""
    return layout / "blobs" / digest.replace(":", "/")


def send(layout: Path, entry: dict[str, Any], present: set[str]) -> int:
    """Stream one image, without the blobs that are present, into `ctr images import`; return the bytes sent."""
    manifest = json.loads(blob(layout, entry["digest"]).read_text())
    digests = [layer["digest"] for layer in manifest["layers"]] + [manifest["config"]["digest"]]
    # The manifest last and always: the import begins with it, and it is small.
    files = [blob(layout, d) for d in dict.fromkeys(digests) if d not in present]
    files.append(blob(layout, entry["digest"]))
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    command = ["ctr", "images", "import", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        with tarfile.open(fileobj=process.stdin, mode="w|") as archive:
            archive.add(layout / "oci-layout", "oci-layout")
            header = tarfile.TarInfo("index.json")
            header.size = len(index)
            archive.addfile(header, io.BytesIO(index))
            for file in files:
                archive.add(file, str(file.relative_to(layout)))
        assert process.stdin is not None
        process.stdin.close()
    if process.returncode:
        raise SystemExit(f"import of {entry['annotations'][NAME]} failed")
    return sum(file.stat().st_size for file in files)


def main() -> None:
    """Import the images named, or all."""
    layout, wanted = Path(sys.argv[1]), set(sys.argv[2:])
    manifests = json.loads((layout / "index.json").read_text())["manifests"]
    # A manifest that lost its name to a newer one stays in the index, without annotations.
    entries = {e["annotations"][NAME]: e for e in manifests if NAME in e.get("annotations", {})}
    if unknown := wanted - set(entries):
        raise SystemExit(f"not built: {', '.join(sorted(unknown))} (see tools/images/build.sh)")
    loaded = {line.split()[0]: line.split()[2] for line in ctr("images", "ls")[1:]}
    for name, entry in entries.items():
        if (wanted and name not in wanted) or loaded.get(name) == entry["digest"]:
            continue
        started = time.monotonic()
        size = send(layout, entry, set(ctr("content", "ls", "-q")))
        print(f"imported {name}: {size / 1e6:.1f} MB in {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
