"""What all models of the API share: camelCase names on the wire, no unknown fields, CEL rules beside the fields."""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


@dataclass(frozen=True)
class Rule:
    """One CEL rule of a model, evaluated by the API server and by `grpo validate` alike.

    The expression reads `self` (the model's object, defaults filled in); the message names the field and the
    remedy. Transition rules, which also read `oldSelf`, are made by `grpo_api.crd`.
    """

    cel: str
    message: str


class Model(BaseModel):
    """Base of all API models."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        strict=True,  # as the API server: "8" is no number
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()


class Open(Model):
    """A Kubernetes object of which we read only the named fields, and pass on the rest as it came."""

    model_config = ConfigDict(extra="allow")


def not_built(when: str, field: str, instead: str) -> Rule:
    """Return the rule that refuses a field whose behaviour is not built yet (none is ever silently ignored)."""
    return Rule(f"!({when})", f"{field} is not supported in this version: {instead}")
