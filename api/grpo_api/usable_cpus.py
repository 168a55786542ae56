"""How many CPUs a container really has."""

import os
from pathlib import Path


def usable_cpus() -> int:
    """CPUs that this container may use: torch would take all of the machine's, and be throttled."""
    cpus = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()  # "max 100000" where there is no limit
        return max(1, min(cpus, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return cpus
