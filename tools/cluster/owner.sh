#!/bin/bash
# owner.sh PID STATE: wait until the process PID has ended, however it ended, then take the cluster down. up.sh
# starts this when CLUSTER_OWNER is set, so that a killed test run leaves no node behind. (STATE only tells
# whose process this is.)
set -euo pipefail
tail --pid="$1" -f /dev/null
exec "$(dirname "$0")/down.sh"
