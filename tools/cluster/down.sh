#!/bin/bash
# down.sh [--purge]: stop the node, remove everything of this run, and prove it with leftovers.sh. Programs
# and images stay for the next run; --purge deletes those too.
set -uo pipefail
. "$(dirname "$0")/env.sh"

if alive "$NODE_PID_FILE"; then
  # First kubelet (it would restart pods), then the containers, so that the image store keeps no trace of
  # them; then the node as a whole.
  kubelet=$(awk '$1 == "kubelet" {print $2}' "$CLUSTER_STATE/programs" 2> /dev/null)
  [ -n "$kubelet" ] && in_node kill -KILL "$kubelet"
  # shellcheck disable=SC2016  # expanded inside the node
  in_node env CONTAINERD_ADDRESS="$CONTAINERD_SOCK" bash -c '
    ids=$(timeout 10 ctr -n k8s.io containers ls -q)
    for id in $ids; do timeout 5 ctr -n k8s.io tasks kill -a -s KILL "$id"; done
    for id in $ids; do
      for _ in $(seq 50); do
        timeout 5 ctr -n k8s.io tasks ls | grep -q "^$id .*RUNNING" || break
        sleep 0.05
      done
      timeout 5 ctr -n k8s.io tasks rm -f "$id"
      timeout 5 ctr -n k8s.io containers rm "$id"
    done' > /dev/null 2>&1
fi
alive "$CLUSTER_STATE/owner.pid" && kill -KILL -- "-$(< "$CLUSTER_STATE/owner.pid")"
for f in "$CLUSTER_STATE/forward.pid" "$CLUSTER_STATE/unshare.pid"; do
  alive "$f" && kill -KILL "$(< "$f")"
done
node_ended() { ! alive "$NODE_PID_FILE"; }
await 10 "the node's end" node_ended

# The pods' cgroups are empty now, or will be once the last process is gone.
cgroups_removed() {
  find /sys/fs/cgroup/*/"$CGROUP" -depth -type d -exec rmdir {} \; 2> /dev/null
  ! compgen -G "/sys/fs/cgroup/*/$CGROUP" > /dev/null
}
await 10 "the removal of cgroups" cgroups_removed
rm -rf "$CLUSTER_STATE"
# (Removing a folder that another namespace has mounted over would unmount it there.)
pgrep -f "$HERE/node.sh" > /dev/null || rmdir "${MOUNT_POINTS[@]}" 2> /dev/null
[ "${1:-}" = --purge ] && rm -rf "$CLUSTER_STORE" "$CLUSTER_IMAGES" "$CLUSTER_BIN" "$CLUSTER_DIR/buildah"
exec "$HERE/leftovers.sh"
