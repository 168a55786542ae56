#!/bin/bash
# leftovers.sh: list what a cluster that is down has left on the machine: processes, mounts, cgroups, network
# links, listening ports, folders. Prints nothing and exits 0 if there is nothing; else exits 1.
set -uo pipefail
. "$(dirname "$0")/env.sh"
found=$(
  for p in /proc/[0-9]*; do
    command=$({ tr '\0' ' ' < "$p/cmdline"; } 2> /dev/null)
    case $command in
      *"$CLUSTER_STATE"*) echo "process ${p#/proc/}: $command" ;;
      *) grep -qsE ":/$CGROUP(/|\$)" "$p/cgroup" && echo "process ${p#/proc/}: $command" ;;
    esac
  done
  # (A mount deeper in buildah's storage belongs to a build that is running now.)
  awk -v state="$CLUSTER_STATE/" -v dir="$CLUSTER_DIR/" -v build="$CLUSTER_DIR/buildah/graph/overlay/" \
    '(index($0, state) || index($5, dir)) && !index($5, build) {print "mount " $5}' /proc/self/mountinfo
  for c in /sys/fs/cgroup/*/"$CGROUP"; do [ -e "$c" ] && echo "cgroup $c"; done
  ip -brief link | awk '$1 ~ /^(node0|pods0)$/ {print "link " $1}'
  ss -Hltn "sport = :$CLUSTER_PORT" 2> /dev/null | awk '{print "port " $4}'
  [ -e "$CLUSTER_STATE" ] && echo "folder $CLUSTER_STATE"
)
[ -z "$found" ] && exit 0
echo "left behind by the test cluster:"
echo "$found"
exit 1
