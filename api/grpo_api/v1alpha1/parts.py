"""spec.reference and spec.trainer: the two parts that run in pods."""

from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Model, Rule
from .model import Dtype, Name
from .pod import Pod, Resources, unset

Image = Annotated[str, Field(min_length=1, max_length=1024)]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]


class Sync(Model):
    """Replacing the reference by the policy during training (iterative GRPO)."""

    every_steps: Annotated[int, Field(ge=1)] = 512
    """Optimizer steps between two replacements (TRL `ref_model_sync_steps`). The reference changes only between two
    generation batches: at the first boundary at or after each multiple, and at most once per generation batch."""
    mixup_alpha: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Share α of the policy in the new reference, α·policy + (1 - α)·reference (TRL `ref_model_mixup_alpha`); 1.0
    replaces it."""


class Reference(Model):
    """The reference server: the frozen model of the KL term, on its own pods."""

    rules = (
        Rule(
            "!(has(self.sync) && has(self.url))",
            "reference.sync cannot replace the model of an external reference.url: remove one of the two",
        ),
        Rule(
            "!has(self.url) || (self.replicas == 1 && !self.deterministic && !has(self.model) && !has(self.revision) "
            "&& !has(self.image))",
            "reference.url names an external server, whose model, revision, image, replicas and deterministic are its "
            "own: remove these fields",
        ),
        Rule(
            "self.engine == 'transformers' || !has(self.sync)",
            "reference.sync needs engine transformers: vLLM and SGLang cannot be asked for a version of the weights",
        ),
        Rule(
            "self.engine == 'transformers' || !self.deterministic",
            "reference.deterministic needs engine transformers: vLLM and SGLang batch as the load has it",
        ),
        Rule(
            "self.engine == 'transformers' || self.maxQueuedTokens == 1048576",
            "reference.maxQueuedTokens has no effect with engine vllm and sglang, whose queues are not bounded in "
            "tokens: remove it, or use engine transformers",
        ),
        Rule(
            "!('nvidia.com/gpu' in self.resources.limits) || "
            "string(self.resources.limits['nvidia.com/gpu']) == string(self.tensorParallelSize)",
            "reference.tensorParallelSize must equal the limit nvidia.com/gpu of reference.resources: every GPU of a "
            "pod holds a part of its model",
        ),
        Rule(
            "!has(self.url) || self.tensorParallelSize == 1",
            "reference.tensorParallelSize has no effect with reference.url, whose server is not ours: remove it",
        ),
        Rule(
            "!has(self.url) || (self.maxBatchTokens == 16384 && self.maxQueuedTokens == 1048576 && !has(self.dtype))",
            "reference.maxBatchTokens, maxQueuedTokens and dtype have no effect with reference.url, whose server is "
            "not ours: remove these fields",
        ),
        Rule(
            f"!has(self.url) || ({unset('self.resources', Resources)} && {unset('self.pod', Pod)} "
            "&& !has(self.imagePullPolicy))",
            "reference.resources, pod and imagePullPolicy have no effect with reference.url, for which no pods are "
            "made: remove these fields",
        ),
    )

    engine: Literal["transformers", "vllm", "sglang"] = "transformers"
    """What computes the log-probabilities: this project's server (transformers), vLLM's or SGLang's own; with url, what
    the external server is."""
    url: Annotated[str, Field(max_length=2048, pattern="^https?://")] | None = None
    """Base URL of an external reference server: none is created then."""
    model: Name | None = None
    """Hub id or path of the reference model; absent: spec.model.name."""
    revision: Annotated[str, Field(max_length=256)] | None = None
    """Revision of reference.model; absent: spec.model.revision where the model is the same."""
    dtype: Dtype | None = None
    """Type of its weights; absent: spec.model.dtype."""
    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    """Reference pods behind the Service."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs one copy of the model is spread over; equals the GPU limit where GPUs are asked for."""
    max_batch_tokens: Annotated[int, Field(ge=1)] = 16384
    """Tokens of one forward pass; requests of all ranks are merged up to it."""
    max_queued_tokens: Annotated[int, Field(ge=1)] = 1048576
    """Tokens that may wait; beyond it requests get 429 and are sent again."""
    deterministic: bool = False
    """Score each group alone, so that results are bit-identical whatever else runs."""
    sync: Sync | None = None
    """Iterative GRPO: the reference is replaced during training; absent: it stays the model that training begins
    with. The reference pods read the new weights from the output volume, which must be shared by all pods."""
    request_timeout_seconds: Annotated[int, Field(ge=1)] = 300
    """Whole deadline of one request, retries included."""
    image: Image | None = None
    """Image of the reference server; absent: the operator's setting."""
    image_pull_policy: PullPolicy | None = None
    """When the image is pulled; absent: the operator's setting."""
    resources: Resources = Field(default_factory=Resources)
    """Compute resources of the container."""
    pod: Pod = Field(default_factory=Pod)
    """What to set on its pods."""


class Deepspeed(Model):
    """DeepSpeed's settings."""

    rules = (
        Rule(
            "self.offloadParam == 'none' || self.zeroStage == 3",
            "deepspeed.offloadParam has no effect below ZeRO stage 3: set it to none, or zeroStage to 3",
        ),
        Rule(
            "self.offloadOptimizer == 'none' || self.zeroStage > 0",
            "deepspeed.offloadOptimizer has no effect at ZeRO stage 0: set it to none, or zeroStage to 1 or more",
        ),
    )

    zero_stage: Annotated[int, Field(ge=0, le=3)] = 3
    """ZeRO stage: 3 shards parameters, gradients and optimizer state over all ranks."""
    offload_optimizer: Literal["none", "cpu"] = "none"
    """Where optimizer state lives."""
    offload_param: Literal["none", "cpu"] = "none"
    """Where sharded parameters live (stage 3)."""
    config: dict[str, Any] | None = None
    """Merged over the DeepSpeed configuration that the trainer makes; batch sizes stay ours."""


class Trainer(Model):
    """The trainer: pods of DeepSpeed ranks."""

    replicas: Annotated[int, Field(ge=1, le=4096)] = 1
    """Trainer pods."""
    processes_per_pod: Annotated[int, Field(ge=1, le=64)] = 1
    """Ranks per pod; equals the GPU limit where GPUs are asked for."""
    image: Image | None = None
    """Image of the trainer; absent: the operator's setting."""
    image_pull_policy: PullPolicy | None = None
    """When the image is pulled; absent: the operator's setting."""
    resources: Resources = Field(default_factory=Resources)
    """Compute resources of each pod's container."""
    pod: Pod = Field(default_factory=Pod)
    """What to set on its pods."""
    deepspeed: Deepspeed = Field(default_factory=Deepspeed)
    """DeepSpeed's settings."""
    rendezvous_timeout_seconds: Annotated[int, Field(ge=1)] = 600
    """Seconds the ranks wait for each other at the start."""
    collective_timeout_seconds: Annotated[int, Field(ge=1)] = 600
    """Seconds a collective operation may take before a peer counts as lost."""
    termination_grace_period_seconds: Annotated[int, Field(ge=1)] = 120
    """Seconds a pod has to save a checkpoint after SIGTERM."""
