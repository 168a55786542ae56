"""GRPOJob and its spec: the groups, and the rules that span them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Model, Open, Rule, not_built
from .core import EnvFromList, EnvList, VolumeList, VolumeMountList
from .data import Dataset, Rewards
from .generation import Generation
from .lifecycle import Checkpoint, FailurePolicy, Logging
from .model import Hub, ModelSpec
from .optimization import Optimization
from .parts import Reference, Trainer
from .pod import reserved_env, reserved_mounts, reserved_volumes
from .status import Status

GROUP = "grpo.dev"
VERSION = "v1alpha1"
KIND = "GRPOJob"
PLURAL = "grpojobs"

MAX_NAME = 40
"""Longest name of a job: its longest child, `<name>-trainer-<attempt>-<index>`, must be a DNS label."""

_WORLD = "self.trainer.replicas * self.trainer.processesPerPod"
_STEPS = (
    "(has(self.generation.stepsPerGeneration) ? self.generation.stepsPerGeneration "
    ": self.optimization.gradientAccumulationSteps)"
)
_GPU = "self.trainer.resources.limits['nvidia.com/gpu']"


class Spec(Model):
    """What is to be trained, and how."""

    rules = (
        Rule(
            "self.generation.numGenerations >= 2",
            "generation.numGenerations must be at least 2: the group's mean is the baseline",
        ),
        Rule(
            f"self.generation.numGenerations < 2 || (self.optimization.perDeviceTrainBatchSize * {_WORLD} * {_STEPS}) "
            "% self.generation.numGenerations == 0",
            "the generation batch (optimization.perDeviceTrainBatchSize × trainer.replicas × "
            "trainer.processesPerPod × generation.stepsPerGeneration) must be divisible by "
            "generation.numGenerations: change one of them",
        ),
        Rule(
            f"({_STEPS} * self.optimization.numIterations) % self.optimization.gradientAccumulationSteps == 0",
            "generation.stepsPerGeneration × optimization.numIterations must be a multiple of "
            "optimization.gradientAccumulationSteps: change one of them, or leave stepsPerGeneration out",
        ),
        Rule(
            "!(has(self.reference.sync) && self.optimization.beta == 0.0)",
            "reference.sync has no effect with optimization.beta 0, which runs no reference: remove sync, or set beta",
        ),
        Rule(
            "!(has(self.reference.sync) && has(self.reference.model) && self.reference.model != self.model.name)",
            "reference.sync replaces the reference by the policy, so both must begin as one model: remove "
            "reference.model, or sync",
        ),
        Rule(
            "self.reference.engine == 'transformers' || self.optimization.beta == 0.0 || "
            "self.generation.temperature == 1.0",
            "generation.temperature must be 1 with reference.engine vllm and sglang, which give log-probabilities of "
            "prompts at no other: set it to 1, or use engine transformers",
        ),
        Rule(
            "!((self.trainer.replicas > 1 || has(self.reference.sync)) && has(self.checkpoint.volume.claimTemplate) && "
            "has(self.checkpoint.volume.claimTemplate.accessModes) && "
            "self.checkpoint.volume.claimTemplate.accessModes.all(m, m == 'ReadWriteOncePod'))",
            "checkpoint.volume is mounted by several pods (trainer.replicas above 1, or reference.sync): add "
            "ReadWriteMany to claimTemplate.accessModes, or leave them out",
        ),
        Rule(
            "!(has(self.reference.url) && self.optimization.beta == 0.0)",
            "reference.url has no effect with optimization.beta 0, which uses no reference: remove url, or set beta",
        ),
        Rule(
            "self.reference.maxQueuedTokens >= self.dataset.maxPromptLength + self.generation.maxCompletionLength || "
            "has(self.reference.url) || self.reference.engine != 'transformers' || self.optimization.beta == 0.0",
            "reference.maxQueuedTokens must hold one row, dataset.maxPromptLength + generation.maxCompletionLength "
            "tokens, or the server refuses it whatever else waits: raise the first, or lower one of the others",
        ),
        Rule(
            "self.reference.requestTimeoutSeconds < self.trainer.collectiveTimeoutSeconds",
            "reference.requestTimeoutSeconds must be below trainer.collectiveTimeoutSeconds, or ranks would give "
            "each other up while one still waits for the reference: lower the first or raise the second",
        ),
        Rule(
            "!has(self.failurePolicy.stallTimeoutSeconds) || self.trainer.collectiveTimeoutSeconds < "
            "self.failurePolicy.stallTimeoutSeconds",
            "trainer.collectiveTimeoutSeconds must be below failurePolicy.stallTimeoutSeconds: lower the first or "
            "raise the second",
        ),
        Rule(
            "!('nvidia.com/gpu' in self.trainer.resources.limits) || "
            f"string({_GPU}) == string(self.trainer.processesPerPod)",
            "trainer.processesPerPod must equal the limit nvidia.com/gpu of trainer.resources: one rank per GPU",
        ),
        Rule(
            "!(has(self.generation.ds3GatherForGeneration) && self.trainer.deepspeed.zeroStage != 3)",
            "generation.ds3GatherForGeneration has no effect below ZeRO stage 3: remove it, or set "
            "trainer.deepspeed.zeroStage to 3",
        ),
        reserved_env("self.env", "env"),
        reserved_volumes("self.volumes", "volumes"),
        reserved_mounts("self.volumeMounts", "volumeMounts"),
        not_built("has(self.ttlSecondsAfterFinished)", "ttlSecondsAfterFinished", "remove the field"),
        not_built("has(self.activeDeadlineSeconds)", "activeDeadlineSeconds", "remove the field"),
    )

    model: ModelSpec
    """The model that is trained."""
    hub: Hub = Field(default_factory=Hub)
    """How the hub is reached."""
    dataset: Dataset
    """The prompts."""
    rewards: Rewards
    """How completions are judged."""
    generation: Generation = Field(default_factory=Generation)
    """How completions are sampled."""
    optimization: Optimization = Field(default_factory=Optimization)
    """The loss and the optimizer."""
    reference: Reference = Field(default_factory=Reference)
    """The reference server."""
    trainer: Trainer = Field(default_factory=Trainer)
    """The trainer."""
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    """Checkpoints and the final model."""
    failure_policy: FailurePolicy = Field(default_factory=FailurePolicy)
    """What happens on faults."""
    logging: Logging = Field(default_factory=Logging)
    """What the trainer writes. A change during a run takes effect with the next attempt."""
    volumes: VolumeList = Field(default_factory=list)
    """Volumes of trainer and reference pods."""
    volume_mounts: VolumeMountList = Field(default_factory=list)
    """Mounts in trainer and reference containers."""
    env: EnvList = Field(default_factory=list)
    """Environment of trainer and reference containers."""
    env_from: EnvFromList = Field(default_factory=list)
    """Environment of trainer and reference containers, from ConfigMaps and Secrets."""
    suspend: bool = False
    """Stop (after a checkpoint) and keep everything; false again resumes."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0)] | None = None
    """Delete the job this long after its end. Not supported in this version."""
    active_deadline_seconds: Annotated[int, Field(ge=1)] | None = None
    """Fail the job after this long. Not supported in this version."""
    cleanup_policy: Literal["Delete", "Retain"] = "Delete"
    """Whether the reference server is deleted at the end."""

    @property
    def world_size(self) -> int:
        """Ranks of the trainer."""
        return self.trainer.replicas * self.trainer.processes_per_pod

    @property
    def steps_per_generation(self) -> int:
        """Micro-batches per rank that one generation batch is split into."""
        return self.generation.steps_per_generation or self.optimization.gradient_accumulation_steps

    @property
    def generation_batch_size(self) -> int:
        """Completions of one generation batch, over all ranks."""
        return self.optimization.per_device_train_batch_size * self.world_size * self.steps_per_generation

    @property
    def uses_reference(self) -> bool:
        """Whether the loss has a KL term."""
        return self.optimization.beta > 0

    @property
    def runs_reference(self) -> bool:
        """Whether the operator runs a reference server (not with beta 0, nor with an external one)."""
        return self.uses_reference and self.reference.url is None

    @property
    def reference_model(self) -> tuple[str, str | None]:
        """Name and revision of the model that the reference begins with."""
        name = self.reference.model or self.model.name
        return name, self.reference.revision or (self.model.revision if name == self.model.name else None)

    @property
    def shares_output(self) -> bool:
        """Whether several pods mount checkpoint.volume: trainer pods, and reference pods that load new versions."""
        return self.trainer.replicas > 1 or self.reference.sync is not None


class Metadata(Open):
    """The parts of meta/v1 ObjectMeta that are read."""

    name: str
    """Name of the job."""
    namespace: str = "default"
    """Namespace of the job."""
    uid: str = ""
    """Unique id, given by the API server (or by `grpo run`)."""
    generation: int = 1
    """Counts changes of the spec."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations."""
    deletion_timestamp: str | None = None
    """Set once the job is being deleted."""


class GRPOJob(Model):
    """One GRPO fine-tuning run."""

    rules = (
        Rule(
            f"size(self.metadata.name) <= {MAX_NAME} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            f"metadata.name must be at most {MAX_NAME} characters, begin with a letter, and hold only lower-case "
            "letters, digits and '-': names of children are made from it; choose another name",
        ),
    )

    api_version: Literal["grpo.dev/v1alpha1"] = "grpo.dev/v1alpha1"
    """API group and version."""
    kind: Literal["GRPOJob"] = "GRPOJob"
    """Kind of object."""
    metadata: Metadata
    """Standard metadata."""
    spec: Spec
    """What is to be trained, and how."""
    status: Status = Field(default_factory=Status)
    """What the operator has seen and done."""

    def to_manifest(self) -> dict[str, Any]:
        """Return the object as a manifest: camelCase, defaults filled in, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
