"""Where a run's files lie: `<volume>/<job>/<uid>/…`, so that a recreated name never finds another run's."""

from pathlib import PurePosixPath

CHECKPOINTS = "checkpoints"
LOGS = "logs"
METRICS = "metrics"
VERSIONS = "versions"
FINAL = "final"


def output_dir(volume: str, job: str, uid: str) -> str:
    """Return the directory of one run below the mounted volume."""
    return str(PurePosixPath(volume) / job / uid)


def versions(output: str) -> str:
    """Return the folder of the reference's versions below an output directory (iterative GRPO)."""
    return str(PurePosixPath(output) / VERSIONS)


def final_model(output: str) -> str:
    """Return where the trained model is saved below an output directory."""
    return str(PurePosixPath(output) / FINAL)
