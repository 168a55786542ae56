#!/bin/bash
# packages.sh: install what the node and the image builds need from Debian. Services are not started: up.sh
# runs containerd itself, inside the node.
set -euo pipefail
packages=(containerd runc containernetworking-plugins buildah skopeo debootstrap nftables iptables iproute2 conntrack socat openssl util-linux)
missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${Status}' "$p" 2> /dev/null)" = "install ok installed" ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
[ "$(id -u)" = 0 ] || { echo "the test cluster needs root and these packages: ${missing[*]}" >&2; exit 1; }

guard=/usr/sbin/policy-rc.d   # while it exits 101, package scripts start no service
if [ ! -e $guard ]; then
  printf '#!/bin/sh\nexit 101\n' > $guard
  chmod +x $guard
  trap 'rm -f $guard' EXIT
fi
apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
