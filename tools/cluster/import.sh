#!/bin/bash
# import.sh [IMAGE…]: load images (all by default) from the OCI layout $CLUSTER_IMAGES into the running
# cluster's containerd. Only what containerd lacks is sent.
set -euo pipefail
. "$(dirname "$0")/env.sh"
export CONTAINERD_ADDRESS=$CONTAINERD_SOCK CONTAINERD_NAMESPACE=k8s.io
exec python3 -I "$HERE/import_images.py" "$CLUSTER_IMAGES" "$@"
