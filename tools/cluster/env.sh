# shellcheck shell=bash disable=SC2034
# env.sh: the variables that every script here sources. Set any of the first group in the environment to
# override it; nothing else names a path of the machine.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# --- where things live ----------------------------------------------------------------------------------
: "${CLUSTER_DIR:=${XDG_CACHE_HOME:-$HOME/.cache}/grpo-cluster}"
: "${CLUSTER_BIN:=$CLUSTER_DIR/bin}"        # built programs                        (kept)
: "${CLUSTER_IMAGES:=$CLUSTER_DIR/images}"  # OCI layout with all images            (kept)
: "${CLUSTER_STORE:=$CLUSTER_DIR/store}"    # containerd's store: saves the import  (kept)
: "${CLUSTER_STATE:=$CLUSTER_DIR/state}"    # everything of one run                 (removed by down.sh)
: "${CLUSTER_PORT:=16443}"                  # the API server on 127.0.0.1, outside the node
: "${CNI_BIN:=/usr/lib/cni}"                # Debian's containernetworking-plugins

# --- versions: must agree with programs/go.mod ------------------------------------------------------------
KUBE_VERSION=v1.36.5
HELM_VERSION=v4.2.4
PAUSE_IMAGE=localhost/pause:3
COREDNS_IMAGE=localhost/coredns:1.14.3

# --- addresses, all inside the node's private network namespace -------------------------------------------
NODE_NAME=node0
NODE_IP=10.245.0.1            # on a bridge without ports: not every kernel has dummy links
POD_CIDR=10.244.0.0/24
POD_GATEWAY=10.244.0.1/24
SERVICE_CIDR=10.96.0.0/16
API_SERVICE_IP=10.96.0.1      # the first address of SERVICE_CIDR
DNS_SERVICE_IP=10.96.0.10

# --- derived ----------------------------------------------------------------------------------------------
: "${CGROUP:=grpo-node}"                           # parent cgroup of all pods, in every hierarchy
PKI=$CLUSTER_STATE/pki
LOG=$CLUSTER_STATE/log
VOLUMES=$CLUSTER_STATE/volumes                     # on the node: NODE_VOLUMES
NODE_VOLUMES=/tmp/hostpath_pv                      # where the host-path provisioner makes its folders
CONTAINERD_SOCK=$CLUSTER_STATE/containerd.sock
ADMIN_KUBECONFIG=$CLUSTER_STATE/admin.kubeconfig   # for use outside the node
NODE_PID_FILE=$CLUSTER_STATE/node.pid              # the node's process 1, as seen outside

# Folders of the machine that the node mounts over. up.sh makes those that are missing; down.sh removes
# them if they are empty and no other node runs.
MOUNT_POINTS=(/var/lib/cni /var/lib/kubelet /etc/cni "$NODE_VOLUMES")

say() { printf '[%s] %s\n' "$(date +%T)" "$*"; }
die() { say "$*" >&2; exit 1; }

# await SECONDS WHAT CMD…: run CMD until it succeeds; WHAT is named when SECONDS have passed.
await() {
  local limit=$1 what=$2 end; shift 2
  end=$(($(date +%s) + limit))
  until "$@" > /dev/null 2>&1; do
    [ "$(date +%s)" -lt "$end" ] || { say "gave up after $limit s waiting for $what" >&2; return 1; }
    sleep 0.1
  done
}

# render FILE: print a template with every @NAME@ replaced by the variable NAME.
render() {
  local text name
  text=$(< "$1")
  for name in $(grep -oE '@[A-Z_]+@' "$1" | tr -d @ | sort -u); do
    text=${text//@$name@/${!name}}
  done
  printf '%s\n' "$text"
}

# alive PIDFILE: does the process named there still run for this cluster? After a crash the number may belong
# to another.
alive() { [ -s "$1" ] && { tr '\0' ' ' < "/proc/$(< "$1")/cmdline"; } 2> /dev/null | grep -qF "$CLUSTER_STATE"; }

# in_node CMD…: run CMD in the node's namespaces (mounts, network, processes).
in_node() { nsenter -t "$(< "$NODE_PID_FILE")" -m -n -p -u -i -- "$@"; }
