"""Exit codes of the trainer's processes, and what the operator does about each.

They say whether another attempt could help; everything that is not named here is a crash, signals as 128 + n
(the shell's convention).
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a trainer process says by its exit code."""

    SUCCEEDED = 0
    """The target step is reached (never: 'nothing was left to do')."""
    CONFIGURATION = 64
    """The configuration cannot work (sysexits' EX_USAGE). Permanent: no restart."""
    DATA = 65
    """The dataset or a reward function failed (sysexits' EX_DATAERR). Permanent: no restart."""
    RETRY = 75
    """A peer or the reference was lost, or SIGTERM came and a checkpoint was saved (EX_TEMPFAIL)."""


PERMANENT = frozenset({ExitCode.CONFIGURATION, ExitCode.DATA})


def is_permanent(code: int) -> bool:
    """Whether a new attempt would meet the same end."""
    return code in PERMANENT
