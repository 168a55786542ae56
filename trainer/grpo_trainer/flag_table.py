"""The trainer's flags: TRL's names, and the field of the GRPOJob spec that each one sets.

Types, defaults and descriptions are the spec's own (`grpo_api.v1alpha1`); this table only names things.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union

from grpo_api.v1alpha1 import Generation, Optimization, Spec
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from grpo_trainer.errors import ConfigurationError

RENAMED: dict[str, str] = {
    "model_name_or_path": "model.name",
    "model_revision": "model.revision",
    "dtype": "model.dtype",
    "attn_implementation": "model.attn_implementation",
    "trust_remote_code": "model.trust_remote_code",
    "dataset_name": "dataset.name",
    "dataset_config": "dataset.config",
    "dataset_train_split": "dataset.split",
    "prompt_column": "dataset.prompt_column",
    "system_prompt": "dataset.system_prompt",
    "max_prompt_length": "dataset.max_prompt_length",
    "shuffle_dataset": "dataset.shuffle",
    "data_seed": "dataset.seed",
    "scale_rewards": "rewards.scale_rewards",
    "ref_model_url": "reference.url",
    "ref_model_engine": "reference.engine",
    "ref_model_request_timeout": "reference.request_timeout_seconds",
    "ref_model_sync_steps": "reference.sync.every_steps",
    "ref_model_mixup_alpha": "reference.sync.mixup_alpha",
    "zero_stage": "trainer.deepspeed.zero_stage",
    "offload_optimizer": "trainer.deepspeed.offload_optimizer",
    "offload_param": "trainer.deepspeed.offload_param",
    "rendezvous_timeout": "trainer.rendezvous_timeout_seconds",
    "ddp_timeout": "trainer.collective_timeout_seconds",
    "save_steps": "checkpoint.every_steps",
    "save_total_limit": "checkpoint.keep",
    "save_final_model": "checkpoint.save_final_model",
    "logging_steps": "logging.every_steps",
    "report_to": "logging.report_to",
    "log_completions": "logging.completions",
}
"""Flags that are named otherwise than their field."""

NOT_FLAGS = {"generation.engine", "generation.mode", "generation.max_staleness"}
"""Fields whose only supported value is the default; TRL's `use_vllm` is handled by `flags`."""

OWN_NAMES: dict[str, type[BaseModel]] = {"generation": Generation, "optimization": Optimization}
"""Groups whose fields already have TRL's names: each scalar field is a flag."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag that sets one field."""

    name: str
    path: tuple[str, ...]
    """Field names (snake_case) below the spec."""
    field: FieldInfo

    @property
    def group(self) -> str:
        """First part of the path."""
        return self.path[0]

    @property
    def is_bool(self) -> bool:
        """Whether the flag may stand without a value."""
        return bool in _members(self.field.annotation)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes; empty where it takes any value."""
        return tuple(
            word
            for member in _members(self.field.annotation)
            if typing.get_origin(member) is Literal
            for word in typing.get_args(member)
        )

    @property
    def default(self) -> Any:
        """The default, None where there is none or the flag is required."""
        return None if self.field.is_required() else self.field.get_default(call_default_factory=True)

    def read(self, value: Any) -> Any:
        """A word of the command line, or a value of a recipe, as the field's type.

        Raises:
            ConfigurationError: it is not one; the message names the flag.
        """
        return read_value(f"--{self.name}", self.field, value)

    @property
    def wire_path(self) -> tuple[str, ...]:
        """The path as the spec's JSON spells it (camelCase)."""
        return tuple(to_camel(part) for part in self.path)


def flags() -> dict[str, Flag]:
    """All flags that set one field, by name."""
    table = [Flag(name, tuple(path.split(".")), _field(path)) for name, path in RENAMED.items()]
    for group, model in OWN_NAMES.items():
        table += [
            Flag(name, (group, name), field)
            for name, field in model.model_fields.items()
            if _is_scalar(field) and f"{group}.{name}" not in NOT_FLAGS
        ]
    return {flag.name: flag for flag in table}


def read_value(name: str, field: FieldInfo, value: Any) -> Any:
    """Text or a value as a field's type ("1e-6" is a number here, as it is not in a manifest).

    Raises:
        ConfigurationError: it is not one, or out of the field's range; the message begins with `name`.
    """
    # "": Annotated takes no empty list of metadata, and pydantic passes over text.
    annotation: Any = typing.Annotated[field.annotation, "", *field.metadata]
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise ConfigurationError(name, f"{error.errors()[0]['msg']}, got {value!r}") from error


def _field(path: str) -> FieldInfo:
    model: type[BaseModel] = Spec
    *parents, leaf = path.split(".")
    for parent in parents:
        [model] = _members(model.model_fields[parent].annotation)
    return model.model_fields[leaf]


def _is_scalar(field: FieldInfo) -> bool:
    return all(
        member in (bool, int, float, str) or typing.get_origin(member) is Literal
        for member in _members(field.annotation)
    )


def _members(annotation: Any) -> Iterator[Any]:
    """The types of a union (None left out), without their constraints."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        for part in typing.get_args(annotation):
            yield from _members(part)
    elif typing.get_origin(annotation) is typing.Annotated:
        yield from _members(typing.get_args(annotation)[0])
    elif annotation is not type(None):
        yield annotation
