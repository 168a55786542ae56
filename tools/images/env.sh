# shellcheck shell=bash
# env.sh: buildah's settings: its storage under $CLUSTER_DIR, and each RUN trusts the certificates that the
# machine trusts (its bundle is mounted while the command runs, and is not part of the image).
. "$(dirname "${BASH_SOURCE[0]}")/../cluster/env.sh"
: "${CA_BUNDLE:=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}"
BUILD_DIR=$CLUSTER_DIR/buildah
export CONTAINERS_STORAGE_CONF=$BUILD_DIR/storage.conf CONTAINERS_CONF=$BUILD_DIR/containers.conf TMPDIR=$BUILD_DIR/tmp
mkdir -p "$TMPDIR" "$CLUSTER_IMAGES"
cat > "$CONTAINERS_STORAGE_CONF" << C
[storage]
driver = "overlay"
graphroot = "$BUILD_DIR/graph"
runroot = "$BUILD_DIR/run"
[storage.options.overlay]
skip_mount_home = "true"    # no mount stays on the machine between builds
C
cat > "$CONTAINERS_CONF" << C
[containers]
volumes = ["$CA_BUNDLE:/etc/ssl/certs/ca-certificates.crt:ro"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
C
