"""What the containers are told: the trainer's environment, the config file and the reference server's arguments.

One spelling for both adapters; only addresses and paths (`state.Places`) differ between them.
"""

import json

from grpo_api import env, layout
from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.engine_arguments import sglang_arguments, vllm_arguments
from grpo_operator.state import Places


def reference_url(job: GRPOJob, places: Places) -> str:
    """Return the base URL the trainer asks for reference log-probabilities; empty where beta is 0."""
    if not job.spec.uses_reference:
        return ""
    return job.spec.reference.url or places.reference_url


def trainer_environment(job: GRPOJob, attempt: int, places: Places) -> dict[str, str]:
    """Return the environment contract of an attempt, all but PET_NODE_RANK (which differs between its pods)."""
    trainer = job.spec.trainer
    return {
        env.REF_MODEL_URL: reference_url(job, places),
        env.REF_MODEL_ENGINE: job.spec.reference.engine,
        env.DS3_GATHER_FOR_GENERATION: env.gather_flag(job.spec.generation.ds3_gather_for_generation),
        env.GRPO_CONFIG: places.config,
        env.GRPO_ATTEMPT: str(attempt),
        env.GRPO_TOKEN_FILE: places.token_file,
        env.GRPO_PROGRESS_PORT: str(places.progress_port),
        env.GRPO_OUTPUT_DIR: places.output_dir,
        env.GRPO_TERMINATION_LOG: places.termination_log,
        env.PET_NNODES: str(trainer.replicas),
        env.PET_NPROC_PER_NODE: str(trainer.processes_per_pod),
        env.PET_MASTER_ADDR: places.master_addr.replace("{attempt}", str(attempt)),
        env.PET_MASTER_PORT: str(places.master_port),
    }


def config_json(job: GRPOJob) -> str:
    """Return the text of the file GRPO_CONFIG: the job's identity and its spec with the defaults filled in."""
    spec = job.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    meta = {"name": job.metadata.name, "namespace": job.metadata.namespace, "uid": job.metadata.uid}
    return json.dumps({"metadata": meta, "spec": spec}, indent=2, sort_keys=True) + "\n"


def reference_arguments(job: GRPOJob, places: Places) -> tuple[str, ...]:
    """Return the arguments of the reference server of spec.reference.engine."""
    match job.spec.reference.engine:
        case "vllm":
            return vllm_arguments(job, places)
        case "sglang":
            return sglang_arguments(job, places)
        case "transformers":
            return _refserver_arguments(job, places)


def _refserver_arguments(job: GRPOJob, places: Places) -> tuple[str, ...]:
    """Return the arguments of `grpo-refserver`, named after the fields of spec.reference and spec.model."""
    model, reference = job.spec.model, job.spec.reference
    name, revision = job.spec.reference_model
    arguments = [
        "--host", places.reference_host,
        "--port", str(places.reference_port),
        "--token-file", places.token_file,
        "--model", name,
        "--dtype", reference.dtype or model.dtype,
        "--max-batch-tokens", str(reference.max_batch_tokens),
        "--max-queued-tokens", str(reference.max_queued_tokens),
        "--request-timeout-seconds", str(reference.request_timeout_seconds),
    ]  # fmt: skip
    if reference.tensor_parallel_size > 1:
        arguments += ["--tensor-parallel-size", str(reference.tensor_parallel_size)]
    if revision:
        arguments += ["--revision", revision]
    if model.attn_implementation:
        arguments += ["--attn-implementation", model.attn_implementation]
    if model.trust_remote_code:
        arguments.append("--trust-remote-code")
    if reference.deterministic:
        arguments.append("--deterministic")
    if reference.sync is not None:
        arguments += ["--versions-root", layout.versions(places.output_dir)]
    return tuple(arguments)
