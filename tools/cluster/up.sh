#!/bin/bash
# up.sh [IMAGE…]: bring the one-node cluster up, wait until it can run pods, and print what to export.
#
# Installs and builds what is missing. If the cluster is up, only new images are loaded. All images that were
# built are loaded unless some are named. With CLUSTER_OWNER=PID the cluster goes down by itself when that
# process ends.
set -euo pipefail
. "$(dirname "$0")/env.sh"
[ "$(id -u)" = 0 ] || die "the test cluster needs root (namespaces, mounts, cgroups); or set KUBECONFIG to another cluster"
export KUBECONFIG=$ADMIN_KUBECONFIG CONTAINERD_ADDRESS=$CONTAINERD_SOCK
kubectl=$CLUSTER_BIN/kubectl
print_exports() { echo "export KUBECONFIG=$ADMIN_KUBECONFIG PATH=$CLUSTER_BIN:\$PATH"; }

if alive "$NODE_PID_FILE" && "$kubectl" get --raw /readyz > /dev/null 2>&1; then
  say "the cluster is already up" >&2
  "$HERE/import.sh" "$@" >&2
  print_exports
  exit 0
fi
"$HERE/packages.sh" >&2
"$HERE/build.sh" > /dev/null
"$HERE/../images/build.sh" pause coredns >&2
"$HERE/down.sh" >&2     # what a crashed run may have left

start_time=$(date +%s.%N)
progress() { say "$1 after $(awk -v a="$start_time" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f", b - a}') s" >&2; }

mkdir -p "$CLUSTER_STORE" "$LOG" "$VOLUMES" "$CLUSTER_STATE"/{cni,var-log/pods,var-lib-cni,opt} "${MOUNT_POINTS[@]}"
chmod 777 "$VOLUMES"
: > "$CLUSTER_STATE/resolv.conf"
for c in /sys/fs/cgroup/*/; do mkdir -p "$c$CGROUP"; done
for f in containerd.toml kubelet.yaml kube-proxy.yaml; do
  render "$HERE/config/$f" > "$CLUSTER_STATE/$f"
done
render "$HERE/config/cni.conflist" > "$CLUSTER_STATE/cni/10-pods.conflist"
"$HERE/pki.sh"

# The node: process 1 of its own namespaces. --kill-child ties its life to that of the unshare process.
setsid unshare --mount --net --pid --uts --ipc --fork --kill-child=KILL --mount-proc --propagation private \
  bash "$HERE/node.sh" "$CLUSTER_STATE" > "$LOG/node.log" 2>&1 < /dev/null &
outer=$!
echo $outer > "$CLUSTER_STATE/unshare.pid"
await 10 "the node's first process" grep -q . "/proc/$outer/task/$outer/children"
tr -d ' ' < "/proc/$outer/task/$outer/children" > "$NODE_PID_FILE"
if [ -n "${CLUSTER_OWNER:-}" ]; then
  setsid bash "$HERE/owner.sh" "$CLUSTER_OWNER" "$CLUSTER_STATE" > "$CLUSTER_DIR/owner.log" 2>&1 < /dev/null &
  echo $! > "$CLUSTER_STATE/owner.pid"
fi

# forward.py opens the node's network namespace: wait until the node has entered it.
await 10 "node.sh" test -s "$CLUSTER_STATE/programs" || { cat "$LOG/node.log" >&2; exit 1; }
setsid python3 -I "$HERE/forward.py" "$CLUSTER_PORT" "$NODE_PID_FILE" "$NODE_IP" 6443 \
  > "$LOG/forward.log" 2>&1 < /dev/null &
echo $! > "$CLUSTER_STATE/forward.pid"

await 30 containerd ctr version || { tail -20 "$LOG/containerd.log" >&2; exit 1; }
progress "containerd ready"
"$HERE/import.sh" "$@" >&2     # while the API server starts
await 60 "the API server" "$kubectl" get --raw /readyz || { tail -20 "$LOG/kube-apiserver.log" "$LOG/forward.log" >&2; exit 1; }
progress "API server ready"
touch "$CLUSTER_STATE/go"
render "$HERE/config/manifests.yaml" | "$kubectl" apply -f - > "$LOG/apply.log"

await 30 "the node to register" "$kubectl" get node "$NODE_NAME" || { tail -20 "$LOG/kubelet.log" >&2; exit 1; }
"$kubectl" wait --for=condition=Ready "node/$NODE_NAME" --timeout=60s > /dev/null
progress "node Ready"
"$kubectl" -n kube-system rollout status deployment/coredns --timeout=120s > /dev/null
progress "DNS ready"
print_exports
