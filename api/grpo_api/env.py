"""The environment contract: the only place that spells the names of the variables our containers read.

The operator sets them, trainer and reference server read them. They are reserved: a manifest that sets one in
any `env` list is refused at admission.
"""

REF_MODEL_URL = "REF_MODEL_URL"
"""Base URL of the reference server; empty where beta is 0."""
REF_MODEL_ENGINE = "REF_MODEL_ENGINE"
"""The dialect the reference speaks: transformers, vllm or sglang."""
DS3_GATHER_FOR_GENERATION = "DS3_GATHER_FOR_GENERATION"
"""`true`, `false` or `auto`: gather the ZeRO-3 shards once per generation batch, or layer by layer."""
GRPO_CONFIG = "GRPO_CONFIG"
"""Path of a JSON file: `{"metadata": {name, namespace, uid}, "spec": the GRPOJob's spec}`."""
GRPO_ATTEMPT = "GRPO_ATTEMPT"
"""Number of this attempt, from 0."""
GRPO_TOKEN_FILE = "GRPO_TOKEN_FILE"  # noqa: S105  (a file's name, not a token)
"""Path of the file that holds the bearer token between the job's pods."""
GRPO_PROGRESS_PORT = "GRPO_PROGRESS_PORT"
"""TCP port on which rank 0 serves /progress and /metrics."""
GRPO_OUTPUT_DIR = "GRPO_OUTPUT_DIR"
"""Directory of this run's files: `<volume>/<job>/<uid>`."""
GRPO_TERMINATION_LOG = "GRPO_TERMINATION_LOG"
"""File that takes the JSON reason a process ends with; Kubernetes' default is /dev/termination-log."""

PET_NNODES = "PET_NNODES"
PET_NPROC_PER_NODE = "PET_NPROC_PER_NODE"
PET_NODE_RANK = "PET_NODE_RANK"
PET_MASTER_ADDR = "PET_MASTER_ADDR"
PET_MASTER_PORT = "PET_MASTER_PORT"
"""torchrun's own names (torch/distributed/argparse_util.py: PET_ + the flag)."""

RESERVED: tuple[str, ...] = (
    REF_MODEL_URL,
    REF_MODEL_ENGINE,
    DS3_GATHER_FOR_GENERATION,
    GRPO_CONFIG,
    GRPO_ATTEMPT,
    GRPO_TOKEN_FILE,
    GRPO_PROGRESS_PORT,
    GRPO_OUTPUT_DIR,
    GRPO_TERMINATION_LOG,
    PET_NNODES,
    PET_NPROC_PER_NODE,
    PET_NODE_RANK,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
)
"""Names that a user's `env` may not set."""

DEFAULT_MASTER_PORT = 29500
DEFAULT_PROGRESS_PORT = 8080
DEFAULT_REFERENCE_PORT = 8000
DEFAULT_TERMINATION_LOG = "/dev/termination-log"


def gather_flag(gather: bool | None) -> str:
    """Return the value of DS3_GATHER_FOR_GENERATION for the field's value (None: auto)."""
    return "auto" if gather is None else str(gather).lower()


def parse_gather_flag(text: str) -> bool | None:
    """Return the field's value for the variable's; raise ValueError for any other word."""
    try:
        return {"true": True, "false": False, "auto": None, "": None}[text.strip().lower()]
    except KeyError:
        raise ValueError(f"{DS3_GATHER_FOR_GENERATION} is {text!r}: it must be true, false or auto") from None
