#!/bin/bash
# lock.sh: write constraints.txt, the one place that pins versions, from the ranges in pyproject.toml.
#
# Versions already pinned there stay, unless a range no longer allows them; `lock.sh --upgrade` takes the newest.
# Everything PyPI's torch asks for is pinned, GPU parts included: what a CPU machine leaves out is said at
# installation (overrides-cpu.txt), not here. Only names and versions are recorded, no address of an index.
set -euo pipefail
cd "$(dirname "$0")/../.."
uv=${UV:-.venv/bin/uv}
"$uv" pip compile pyproject.toml --extra dev --python-version 3.11 --overrides tools/python/overrides.txt --no-annotate --no-header -q "$@" \
  --custom-compile-command "make lock" --output-file constraints.txt > /dev/null
echo "constraints.txt: $(wc -l < constraints.txt) packages"
