#!/bin/bash
# node.sh STATE: process 1 of the node. up.sh starts it in new mount, network, process, UTS and IPC namespaces; when
# it ends, the kernel ends every process of the node (containers too) and drops every mount and interface.
set -euo pipefail
. "$(dirname "$0")/env.sh"
export PATH=$CLUSTER_BIN:/usr/sbin:/usr/bin:/sbin:/bin

# --- mounts: private to the node, but shared within it (kubelet and containerd see each other's) ----------
mount --make-rshared /
mount -t tmpfs -o mode=755 node-run /run
mount --bind "$CLUSTER_STATE/var-log" /var/log
mount --bind "$CLUSTER_STATE/var-lib-cni" /var/lib/cni
mount --bind "$VOLUMES" "$NODE_VOLUMES"
mount -t tmpfs -o mode=755 node-kubelet /var/lib/kubelet   # the fixed place of device plugins
mount -t tmpfs -o mode=755 node-cni /etc/cni               # the fixed place of a lock file
mkdir -p /run/netns /run/containerd /run/lock

# kubelet sets some kernel settings for the whole machine, but writes nothing where they already read as it
# wants: put look-alike files over them.
shadow() {
  mkdir -p "/run/sysctl/$(dirname "$1")"
  echo "$2" > "/run/sysctl/$1"
  mount --bind "/run/sysctl/$1" "/proc/sys/$1"
}
shadow vm/overcommit_memory 1
shadow vm/panic_on_oom 0
shadow kernel/panic 10
shadow kernel/panic_on_oops 1
shadow kernel/keys/root_maxkeys 1000000
shadow kernel/keys/root_maxbytes 25000000

# --- network: no uplink, so nothing can leave -------------------------------------------------------------
hostname "$NODE_NAME"
ip link set lo up
ip link add node0 type bridge
ip addr add "$NODE_IP/32" dev node0
ip link set node0 up
ip link add pods0 type bridge
ip addr add "$POD_GATEWAY" dev pods0
ip link set pods0 up
# Service addresses need a route that is no blackhole: packets made on the node are routed before
# kube-proxy's rules rewrite them.
ip route add "$SERVICE_CIDR" dev pods0
ip route add blackhole default metric 4000
sysctl -qw net.ipv4.ip_forward=1

# --- programs ---------------------------------------------------------------------------------------------
declare -A names
start() { # start NAME ARGUMENT…: run the program in the background, its output in a log file
  "$@" > "$LOG/$1.log" 2>&1 < /dev/null &
  names[$!]=$1
  echo "$1 $!" >> "$CLUSTER_STATE/programs"
}
ulimit -n "$(ulimit -Hn)"
touch "$CLUSTER_STATE/programs"

start containerd -c "$CLUSTER_STATE/containerd.toml"
start etcd --name node --data-dir "$CLUSTER_STATE/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
  --initial-cluster node=http://127.0.0.1:2380
start kube-apiserver \
  --etcd-servers=http://127.0.0.1:2379 \
  --bind-address=0.0.0.0 --advertise-address="$NODE_IP" --secure-port=6443 \
  --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
  --client-ca-file="$PKI/ca.crt" \
  --kubelet-certificate-authority="$PKI/ca.crt" \
  --kubelet-client-certificate="$PKI/apiserver-kubelet.crt" --kubelet-client-key="$PKI/apiserver-kubelet.key" \
  --kubelet-preferred-address-types=InternalIP \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local \
  --service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key" \
  --service-cluster-ip-range="$SERVICE_CIDR" \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  --allow-privileged=true

# The rest starts once the API server is ready and containerd has its images: up.sh says so by this file.
until [ -e "$CLUSTER_STATE/go" ]; do sleep 0.1; done

start kube-controller-manager \
  --kubeconfig="$CLUSTER_STATE/kube-controller-manager.kubeconfig" \
  --service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" \
  --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
  --use-service-account-credentials=true --leader-elect=false --bind-address=127.0.0.1 \
  --enable-hostpath-provisioner=true --kube-api-qps=200 --kube-api-burst=400
start kube-scheduler --kubeconfig="$CLUSTER_STATE/kube-scheduler.kubeconfig" --leader-elect=false \
  --bind-address=127.0.0.1
start kubelet --config="$CLUSTER_STATE/kubelet.yaml" --kubeconfig="$CLUSTER_STATE/kubelet.kubeconfig" \
  --hostname-override="$NODE_NAME" --node-ip="$NODE_IP" --root-dir="$CLUSTER_STATE/kubelet"
start kube-proxy --config="$CLUSTER_STATE/kube-proxy.yaml"
start netpol --kubeconfig="$CLUSTER_STATE/netpol.kubeconfig" --hostname-override="$NODE_NAME"

# The host-path provisioner makes its folders with mode 0750, and no fsGroup is applied to a hostPath: open
# them, for pods that don't run as root.
while sleep 0.5; do
  find "$NODE_VOLUMES" -mindepth 1 -maxdepth 1 -type d ! -perm -0777 -exec chmod 0777 {} +
done &

# Stay, collect orphans, and say which program ended, should one.
while :; do
  wait -n -p pid || true
  if [ -n "${pid:-}" ]; then say "ended: ${names[$pid]:-$pid}"; else sleep 1; fi
done
