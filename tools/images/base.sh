#!/bin/bash
# base.sh IMAGE: make the base of the Python images by debootstrap: Debian's minimum, Python and certificates.
set -euo pipefail
. "$(dirname "$0")/env.sh"
image=$1 root=$BUILD_DIR/base
# shellcheck disable=SC2016  # expanded by apt-get
sources() { apt-get indextargets --format '$(SITE) $(RELEASE)' | awk '$1 ~ "/debian/?$" && $2 !~ /-/ {print; exit}'; }
read -r mirror suite < <(sources) || { apt-get update -q > /dev/null; read -r mirror suite < <(sources); }
rm -rf "$root"
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv "$suite" "$root" "$mirror" > "$BUILD_DIR/base.log" ||
  { tail -20 "$BUILD_DIR/base.log" >&2; exit 1; }
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale,info}/* "$root"/var/log/*
: > "$root/etc/apt/sources.list"      # names this machine's mirror
: > "$root/etc/resolv.conf"
rm -f "$root/etc/hostname"
c=$(buildah from scratch)
buildah add -q "$c" "$root" / > /dev/null
buildah config --cmd '["bash"]' --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --env LANG=C.UTF-8 "$c"
buildah commit --rm -q "$c" "$image" > /dev/null
rm -rf "$root"
