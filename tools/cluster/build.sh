#!/bin/bash
# build.sh: compile the cluster's programs into $CLUSTER_BIN and print that folder.
#
# Needs Go, a C compiler (for pause), python3 and the Go module proxy. Every version is pinned by
# programs/go.mod and go.sum. With unchanged inputs it does nothing; with a warm build cache it only links.
set -euo pipefail
. "$(dirname "$0")/env.sh"
mkdir -p "$CLUSTER_BIN"
exec 9> "$CLUSTER_DIR/build.lock"
flock 9
cd "$HERE/programs"

stamp=$({ find . -type f -print0 | sort -z | xargs -0 sha256sum; go version; echo "$KUBE_VERSION $HELM_VERSION"; } | sha256sum)
if [ "$(cat "$CLUSTER_BIN/.stamp" 2> /dev/null)" = "$stamp" ]; then
  say "programs are up to date" >&2
  echo "$CLUSTER_BIN"
  exit 0
fi
export CGO_ENABLED=0 GOTOOLCHAIN=local

# go.mod replaces one module by a changed copy of it. The copy is made outside the tree, so all is built
# from a copy there. (The module is fetched from another folder: go.mod can't be read without the copy.)
src=$CLUSTER_DIR/src
module=sigs.k8s.io/kube-network-policies
wanted=$(awk -v m="$module" '$1 == m && $2 ~ /^v/ {print m "@" $2}' go.mod)
original=$(cd / && GOFLAGS=-mod=mod go mod download -json "$wanted" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
rm -rf "$src"
cp -r . "$src"
mkdir "$src/patched"
cp -r "$original"/{go.mod,LICENSE,pkg} "$src/patched/"
chmod -R u+w "$src/patched"
python3 -I netpol/patch.py "$src/patched"

# The modules don't know their own versions: tell them.
v=k8s.io/component-base/version
x="-X $v.gitVersion=$KUBE_VERSION -X $v.gitMajor=1 -X $v.gitMinor=$(cut -d. -f2 <<< "$KUBE_VERSION")"
x="$x -X $v.gitTreeState=clean -X $v.gitCommit=unknown"
h=helm.sh/helm/v4/internal/version
x="$x -X $h.version=$HELM_VERSION -X $h.gitTreeState=clean"

cd "$src"
export GOFLAGS="-mod=readonly -trimpath -buildvcs=false"
for program in kube coredns netpol; do
  t0=$SECONDS
  [ $program = kube ] && say "compiling Kubernetes: 10 to 20 minutes the first time" >&2
  go build -ldflags "-s -w $x" -o "$CLUSTER_BIN/$program" "./$program"
  say "$program: $((SECONDS - t0)) s, $(stat -c %s "$CLUSTER_BIN/$program") bytes" >&2
done
for name in etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubelet kubectl helm; do
  ln -sf kube "$CLUSTER_BIN/$name"
done
gcc -O2 -static -s -o "$CLUSTER_BIN/pause" pause/pause.c
rm -rf "$src"
echo "$stamp" > "$CLUSTER_BIN/.stamp"
echo "$CLUSTER_BIN"
