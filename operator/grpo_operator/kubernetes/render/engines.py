"""What a reference pod runs, by engine: command, probes, environment and user."""

from dataclasses import dataclass, field
from typing import Any

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.kubernetes import names, places
from grpo_operator.kubernetes.settings import Settings

Entry = dict[str, Any]

USER = 10001
"""vLLM's and SGLang's images run as root unless told otherwise, which the restricted standard forbids."""

_SGLANG = (
    'umask 077 && printf \'api-key: "%s"\\n\' "$(cat {token})" > {file} && '
    'exec python3 -m sglang.launch_server --config {file} "$@"'
)
"""SGLang takes its key as an argument or from a file of arguments only; in a file no process list shows it."""

_FOREIGN = (
    # The user has no entry in the image's /etc/passwd: getpass.getuser(), which torch calls, needs one of these.
    {"name": "USER", "value": "grpo"},
    {"name": "TORCHINDUCTOR_CACHE_DIR", "value": f"{places.CACHE_DIR}/torchinductor"},
    {"name": "TRITON_CACHE_DIR", "value": f"{places.CACHE_DIR}/triton"},
)


@dataclass(frozen=True)
class Engine:
    """How the server of one engine is run in a pod."""

    image: str
    """Where spec.reference.image is absent."""
    command: tuple[str, ...]
    ready: str
    """Path that answers 200 once it can score."""
    alive: str
    """Path that answers 200 while it need not be started again."""
    environment: tuple[Entry, ...] = ()
    """Variables that users may override."""
    contract: tuple[Entry, ...] = ()
    """Variables that they may not."""
    security: Entry = field(default_factory=dict)
    """Further fields of the pod's securityContext, which users may override."""


def engine_of(job: GRPOJob, settings: Settings) -> Engine:
    """Return the engine of spec.reference.engine."""
    match job.spec.reference.engine:
        case "transformers":
            return Engine(settings.reference_image, ("grpo-refserver",), ready="/readyz", alive="/healthz")
        case "vllm":
            key = {"name": names.token(job.metadata.name), "key": places.TOKEN_FILE}
            return Engine(
                settings.vllm_image,
                ("python3", "-m", "vllm.entrypoints.openai.api_server"),
                ready="/health",
                alive="/health",
                environment=(*_FOREIGN, {"name": "VLLM_NO_USAGE_STATS", "value": "1"}),
                contract=({"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": key}},),
                security={"runAsUser": USER, "runAsGroup": USER},
            )
        case "sglang":
            script = _SGLANG.format(token=f"{places.TOKEN_DIR}/{places.TOKEN_FILE}", file=f"{places.TMP_DIR}/key.yaml")
            return Engine(
                settings.sglang_image,
                ("sh", "-c", script, "sglang"),
                ready="/health",
                alive="/health",
                # /health would generate a token each time, and fail while a long batch is computed.
                environment=(*_FOREIGN, {"name": "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "value": "false"}),
                security={"runAsUser": USER, "runAsGroup": USER},
            )
