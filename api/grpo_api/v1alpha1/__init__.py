"""GRPOJob, group grpo.dev, version v1alpha1: the only source of the CRD, its reference page and the config."""

from .base import Model, Rule
from .core import EnvFromSource, EnvVar, EnvVarSource, Volume, VolumeMount
from .data import CodeFrom, Dataset, RewardFunction, Rewards
from .generation import Generation, Vllm
from .job import GROUP, KIND, MAX_NAME, PLURAL, VERSION, GRPOJob, Metadata, Spec
from .lifecycle import Checkpoint, CheckpointVolume, ClaimTemplate, FailurePolicy, Logging
from .model import Hub, Lora, ModelSpec, SecretKey
from .optimization import Optimization
from .parts import Deepspeed, Reference, Sync, Trainer
from .pod import Pod, Resources
from .status import (
    Cause,
    Condition,
    ConditionType,
    LastTermination,
    Phase,
    ProgressStatus,
    ReferenceStatus,
    Status,
    TrainerStatus,
)

__all__ = [
    "GROUP",
    "KIND",
    "MAX_NAME",
    "PLURAL",
    "VERSION",
    "Cause",
    "Checkpoint",
    "CheckpointVolume",
    "ClaimTemplate",
    "CodeFrom",
    "Condition",
    "ConditionType",
    "Dataset",
    "Deepspeed",
    "EnvFromSource",
    "EnvVar",
    "EnvVarSource",
    "FailurePolicy",
    "GRPOJob",
    "Generation",
    "Hub",
    "LastTermination",
    "Logging",
    "Lora",
    "Metadata",
    "Model",
    "ModelSpec",
    "Optimization",
    "Phase",
    "Pod",
    "ProgressStatus",
    "Reference",
    "ReferenceStatus",
    "Resources",
    "RewardFunction",
    "Rewards",
    "Rule",
    "SecretKey",
    "Spec",
    "Status",
    "Sync",
    "Trainer",
    "TrainerStatus",
    "Vllm",
    "Volume",
    "VolumeMount",
]
