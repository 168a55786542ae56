"""spec.generation: how completions are sampled."""

from typing import Annotated, Literal

from pydantic import Field

from .base import Model, Rule, not_built


class Vllm(Model):
    """Settings of the vLLM engine."""

    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    """Generator pods."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs one copy of the model is spread over."""


class Generation(Model):
    """How completions are sampled. Names and defaults are TRL 1.16's."""

    rules = (
        Rule(
            "!(self.engine == 'vllm' && has(self.ds3GatherForGeneration))",
            "generation.ds3GatherForGeneration has no effect with generation.engine vllm: remove the field, "
            "or use engine transformers",
        ),
        Rule(
            "self.mode != 'async' || self.engine == 'vllm'",
            "generation.mode async needs generation.engine vllm: set mode to sync",
        ),
        not_built("self.engine == 'vllm'", "generation.engine vllm", "use engine transformers"),
        not_built("self.mode == 'async'", "generation.mode async", "use mode sync"),
        not_built("has(self.maxStaleness)", "generation.maxStaleness", "remove the field"),
        not_built("has(self.vllm)", "generation.vllm", "remove the group"),
    )

    engine: Literal["transformers", "vllm"] = "transformers"
    """What generates: transformers inside the trainer, or vLLM pods (not supported in this version)."""
    num_generations: Annotated[int, Field(le=1024)] = 8
    """Completions per prompt: the group whose mean is the baseline. At least 2."""
    steps_per_generation: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Micro-batches that one generation batch is split into; absent: gradientAccumulationSteps."""
    max_completion_length: Annotated[int, Field(ge=1)] = 512
    """Longest completion in tokens."""
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Sampling temperature; log-probabilities of policy and reference are computed at the same one."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling: smallest set of tokens with this much probability."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Sample from the k likeliest tokens only; 0: all."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Leave out tokens less likely than this share of the likeliest."""
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Penalty on tokens already seen; 1.0: none."""
    ds3_gather_for_generation: bool | None = None
    """Under ZeRO-3: true gathers the whole model once per generation batch (fast, needs memory for a full
    copy), false gathers layer by layer (slow, saves that memory), absent chooses by the free memory."""
    mode: Literal["sync", "async"] = "sync"
    """Whether training waits for generation. async is not supported in this version."""
    max_staleness: Annotated[int, Field(ge=1, le=64)] | None = None
    """Steps that a completion may be older than the policy in async mode. Not supported in this version."""
    vllm: Vllm | None = None
    """Settings of the vLLM engine. Not supported in this version."""
