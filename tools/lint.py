"""Run every static check, all of them even if one fails, and say what was left out and why.

Python: ruff, mypy --strict, import-linter. Dockerfiles: hadolint. Shell: shellcheck. Chart: helm lint --strict.
Generated files: equal to what the models give. How pods are secured is checked by the API server itself, which
takes the chart and the operator's children in a namespace of the `restricted` Pod Security Standard
(tests/integration/operator).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def tracked(*patterns: str) -> list[str]:
    """Return the files that git tracks, or does not ignore, under these patterns."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(name for name in names if name and (ROOT / name).is_file())


def shell_scripts() -> list[str]:
    """Return the scripts: by their ending, or by a first line that names a shell."""
    return [
        name
        for name in tracked("*.sh", ".ci/run", "*/env")
        if name.endswith(".sh") or (ROOT / name).read_bytes()[:64].startswith((b"#!/bin/bash", b"#!/bin/sh"))
    ]


def helm() -> str | None:
    """Return the helm built with the test cluster, or the machine's own."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "grpo-cluster"
    for folder in (Path(os.environ.get("CLUSTER_DIR", cache)) / "bin", *map(Path, os.get_exec_path())):
        if (folder / "helm").exists():
            return str(folder / "helm")
    return None


def checks() -> list[tuple[str, list[str] | str]]:
    """Return (name, command), or (name, why it is left out)."""
    found_helm = helm()
    return [
        ("ruff", [str(BIN / "ruff"), "check", "--quiet", "."]),
        ("ruff format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."]),
        ("mypy", [str(BIN / "mypy"), "--no-error-summary"]),
        ("import-linter", [str(BIN / "lint-imports"), "--no-cache"]),
        ("hadolint", [str(BIN / "hadolint"), *tracked("images/*/Dockerfile", "images/Dockerfile*")]),
        ("shellcheck", [str(BIN / "shellcheck"), "-x", "-P", "SCRIPTDIR", *shell_scripts()]),
        ("generated files", [sys.executable, "tools/generate.py", "--check"]),
        (
            "helm lint",
            [found_helm, "lint", "--strict", "charts/grpo"]
            if found_helm
            else "no helm yet: tools/cluster/build.sh makes it",
        ),
    ]


def main() -> int:
    """Run the checks; return 1 if one found something."""
    failed = []
    for name, command in checks():
        if isinstance(command, str):
            print(f"{name:<16} left out: {command}", flush=True)
            continue
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(f"{name:<16} {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout, flush=True)
    print(f"{len(checks()) - len(failed)} checks, {len(failed)} failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
