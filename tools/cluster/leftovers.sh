#!/bin/bash
# leftovers.sh: list what a cluster that is down has left on the machine: processes, mounts, cgroups, network
# links and tables, listening ports, folders. Prints nothing and exits 0 if there is nothing; else exits 1.
set -uo pipefail
. "$(dirname "$0")/env.sh"
found=$(
  for p in /proc/[0-9]*; do
    command=$(tr '\0' ' ' < "$p/cmdline" 2> /dev/null)
    exe=$(readlink "$p/exe" 2> /dev/null)
    case "$exe $command" in
      "$CLUSTER_BIN"/kube*\ *"$CLUSTER_STATE"* | *"$CLUSTER_STATE/"* | *"$HERE/node.sh"* | *"$HERE/forward.py"*)
        echo "process ${p#/proc/}: $command" ;;
      *) grep -qs ":/$CGROUP" "$p/cgroup" && echo "process ${p#/proc/}: $command" ;;
    esac
  done
  awk -v s="$CLUSTER_STATE" '{if (index($0, s)) print "mount " $5}' /proc/self/mountinfo
  for c in /sys/fs/cgroup/*/"$CGROUP"; do [ -e "$c" ] && echo "cgroup $c"; done
  ip -brief link | awk '$1 ~ /^(node0|pods0|veth)/ {print "link " $1}'
  nft list tables 2> /dev/null | awk '/kube-proxy|kube-network-policies/ {print "nft " $0}'
  ss -Hltn "sport = :$CLUSTER_PORT" 2> /dev/null | awk '{print "port " $4}'
  [ -e "$CLUSTER_STATE" ] && echo "folder $CLUSTER_STATE"
)
[ -z "$found" ] && exit 0
echo "left behind by the test cluster:"
echo "$found"
exit 1
