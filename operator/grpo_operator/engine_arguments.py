"""Arguments of the reference servers that are not ours: vLLM's and SGLang's own, named after spec.reference.

Contract: vLLM 0.32 (`python -m vllm.entrypoints.openai.api_server --help`) and SGLang 0.5.23
(`python -m sglang.launch_server --help`). Tokens are no arguments: those are seen in manifests and process lists.
"""

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.state import Places


def vllm_arguments(job: GRPOJob, places: Places) -> tuple[str, ...]:
    """Return the arguments of vLLM's OpenAI-compatible server."""
    reference = job.spec.reference
    name, revision = job.spec.reference_model
    arguments = [
        "--host", places.reference_host,
        "--port", str(places.reference_port),
        "--model", name,
        "--dtype", reference.dtype or job.spec.model.dtype,
        "--tensor-parallel-size", str(reference.tensor_parallel_size),
        "--max-num-batched-tokens", str(reference.max_batch_tokens),
        # Requests with prompt_logprobs never read the cache; blocks kept for it would only be evicted.
        "--no-enable-prefix-caching",
    ]  # fmt: skip
    if revision:
        arguments += ["--revision", revision, "--tokenizer-revision", revision]
    if job.spec.model.trust_remote_code:
        arguments.append("--trust-remote-code")
    return tuple(arguments)


def sglang_arguments(job: GRPOJob, places: Places) -> tuple[str, ...]:
    """Return the arguments of SGLang's server."""
    reference = job.spec.reference
    name, revision = job.spec.reference_model
    arguments = [
        "--host", places.reference_host,
        "--port", str(places.reference_port),
        "--model-path", name,
        "--dtype", reference.dtype or job.spec.model.dtype,
        "--tp-size", str(reference.tensor_parallel_size),
        "--chunked-prefill-size", str(reference.max_batch_tokens),
        # At info it writes all its arguments into the log, the API key among them.
        "--log-level", "warning",
    ]  # fmt: skip
    if revision:
        arguments += ["--revision", revision]
    if job.spec.model.trust_remote_code:
        arguments.append("--trust-remote-code")
    return tuple(arguments)
