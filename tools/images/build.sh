#!/bin/bash
# build.sh [NAME…]: build images with buildah, without a registry, into the OCI layout $CLUSTER_IMAGES, from
# which tools/cluster/import.sh loads them into the test cluster.
#
# Names: operator, refserver, trainer (all three by default), and pause and coredns, which the cluster itself
# needs. TORCH=cuda builds refserver and trainer for GPUs; here the default is cpu. Layers are kept: after a
# change of our code only the small last layer of an image is made again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/../cluster/packages.sh" >&2
# shellcheck source=tools/images/env.sh
. "$here/env.sh"
root=$(cd "$here/../.." && pwd)
exec 9> "$CLUSTER_DIR/images.lock"
flock 9

BASE=localhost/grpo-python:3.11
RUNTIME=localhost/grpo-runtime:dev

exists() { buildah inspect --type image "$1" > /dev/null 2>&1; }
# Layers stay uncompressed, so that their digests are known and only new ones are copied.
publish() { skopeo copy -q --dest-oci-accept-uncompressed-layers "containers-storage:$1" "oci:$CLUSTER_IMAGES:$1"; }

program() { # program IMAGE NAME USER: an image of one static program of the cluster
  local c stamp
  stamp=$(sha256sum < "$CLUSTER_BIN/$2")
  [ "$(buildah inspect --type image -f '{{index .OCIv1.Config.Labels "stamp"}}' "$1" 2> /dev/null)" = "$stamp" ] && return
  c=$(buildah from scratch)
  buildah add -q "$c" "$CLUSTER_BIN/$2" "/$2" > /dev/null
  buildah config --entrypoint "[\"/$2\"]" --user "$3" --label "stamp=$stamp" "$c"
  buildah commit --rm -q "$c" "$1" > /dev/null
}

base() { # Debian with Python, from this machine's package sources; stands for python:3.11-slim-bookworm
  exists $BASE || "$here/base.sh" $BASE
}

dockerfile() { # dockerfile NAME IMAGE ARGUMENT…
  local name=$1 image=$2 log=$BUILD_DIR/$1.log; shift 2
  exists "$image" || say "image $image: the first build takes minutes, log in $log"
  buildah bud --layers --isolation chroot --network host --pull-never -t "$image" "$@" \
    -f "$root/images/$name/Dockerfile" "$root" > "$log" 2>&1 || { tail -30 "$log" >&2; die "image $name: build failed, see $log"; }
}

runtime() { base; dockerfile runtime $RUNTIME --build-arg "BASE=$BASE" --build-arg "TORCH=${TORCH:-cpu}"; }

# What only older images used: blobs at once, build layers when what the layers are made from has changed.
prune() {
  local key
  python3 -I "$here/prune_layout.py" "$CLUSTER_IMAGES"
  key=$(cat "$root/constraints.txt" "$root"/images/*/Dockerfile | sha256sum)
  [ "$(cat "$BUILD_DIR/pruned" 2> /dev/null)" = "$key" ] && return
  buildah rm --all > /dev/null     # working containers of builds that failed
  buildah rmi --prune > /dev/null
  echo "$key" > "$BUILD_DIR/pruned"
}

[ $# -gt 0 ] || set -- operator refserver trainer
case " $* " in *" refserver "* | *" trainer "*) t0=$SECONDS; runtime; say "image $RUNTIME: $((SECONDS - t0)) s" ;; esac
for name; do
  t0=$SECONDS image=localhost/grpo-$name:dev
  case $name in
    pause) image=$PAUSE_IMAGE; program "$image" pause 65535:65535 ;;
    coredns) image=$COREDNS_IMAGE; program "$image" coredns 65532:65532 ;;
    operator) base; dockerfile operator "$image" --build-arg "BASE=$BASE" ;;
    refserver | trainer) dockerfile "$name" "$image" --build-arg "RUNTIME=$RUNTIME" ;;
    *) die "no image named $name" ;;
  esac
  publish "$image"
  say "image $image: $((SECONDS - t0)) s"
done
prune
