#!/bin/bash
# engines.sh [lock] vllm|sglang…: environments of the reference engines that are not ours, for the tests: .venv-vllm and
# .venv-sglang, CPU only, from the pinned versions in engines/NAME.txt; made anew where those have changed.
# `lock` writes engines/NAME.txt from engines/NAME.in: names and versions only, no address of an index.
set -euo pipefail
cd "$(dirname "$0")/../.."
uv=${UV:-$PWD/.venv/bin/uv}
python=$(readlink -f .venv/bin/python)
engines=tools/python/engines
export UV_PYTHON_DOWNLOADS=never

lock() { # lock NAME
  "$uv" pip compile "$engines/$1.in" --python-version 3.11 --overrides tools/python/overrides-cpu.txt --overrides "$engines/$1-overrides.txt" \
    --no-annotate --no-header -q --custom-compile-command "tools/python/engines.sh lock $1" --output-file "$engines/$1.txt" > /dev/null
  echo "$engines/$1.txt: $(wc -l < "$engines/$1.txt") packages"
}

make_venv() { # make_venv NAME
  local venv=.venv-$1 stamp
  stamp=$(sha256sum < "$engines/$1.txt")
  [ "$(cat "$venv/.installed" 2> /dev/null)" = "$stamp" ] && return
  rm -rf "$venv"
  "$uv" venv -q --python "$python" "$venv"
  "$uv" pip install -q --python "$venv/bin/python" --no-deps -r "$engines/$1.txt"
  [ "$1" != sglang ] || cp -r "$engines/sgl_kernel" "$venv"/lib/python*/site-packages/
  echo "$stamp" > "$venv/.installed"
}

action=make_venv
if [ "${1-}" = lock ]; then action=lock; shift; fi
[ $# -gt 0 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
for name; do
  [ -f "$engines/$name.in" ] || { echo "$name: no such engine" >&2; exit 2; }
  "$action" "$name"
done
