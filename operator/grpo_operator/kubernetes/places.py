"""Where things lie inside the pods, and how the pods find each other."""

from grpo_api import env, layout
from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.state import Places

from . import names
from .settings import Settings

CONFIG_DIR = "/run/grpo/config"
CONFIG_FILE = "config.json"
TOKEN_DIR = "/run/grpo/token"  # noqa: S105  (a folder)
TOKEN_FILE = "token"  # noqa: S105  (a file's name)
CODE_DIR = "/run/grpo/code"
OUTPUT_DIR = "/output"
HOME_DIR = "/home/grpo"
CACHE_DIR = "/cache"
TMP_DIR = "/tmp"  # noqa: S108  (an emptyDir of the pod)


def places(job: GRPOJob, settings: Settings) -> Places:
    """Return the paths and addresses of one job's pods."""
    meta = job.metadata
    service = f"{names.reference(meta.name)}.{meta.namespace}.svc"
    return Places(
        output_dir=layout.output_dir(OUTPUT_DIR, meta.name, meta.uid),
        config=f"{CONFIG_DIR}/{CONFIG_FILE}",
        token_file=f"{TOKEN_DIR}/{TOKEN_FILE}",
        reference_url=f"http://{service}:{settings.reference_port}",
        reference_host="0.0.0.0",  # noqa: S104  (a pod's own network)
        reference_port=settings.reference_port,
        # Host name and headless Service of rank 0's pod; plan puts the number of the attempt in.
        master_addr=f"{names.trainer(meta.name)}-{{attempt}}-0.{names.trainer(meta.name)}",
        master_port=env.DEFAULT_MASTER_PORT,
        progress_port=settings.progress_port,
        termination_log=env.DEFAULT_TERMINATION_LOG,
    )
