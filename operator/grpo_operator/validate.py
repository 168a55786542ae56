"""`grpo validate`: what the API server would say about a manifest, without one.

The fields are checked by the pydantic models of which the CRD's schema is made, the rules by the same CEL
expressions that stand in the CRD.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from grpo_api.rules import Location, broken_rules
from grpo_api.v1alpha1 import GRPOJob, Model
from pydantic import ValidationError

from grpo_operator.manifest import Manifest


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a manifest."""

    location: Location
    """Where: names of fields and indices of lists."""
    sentence: str
    """What is wrong and what to do."""

    @property
    def field(self) -> str:
        """The location as text: `spec.rewards.functions[0].weight`."""
        text = ""
        for step in self.location:
            text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        return text

    def __str__(self) -> str:
        return f"{self.field}: {self.sentence}" if self.location else self.sentence


class InvalidJobError(Exception):
    """A manifest that is no valid GRPOJob."""

    def __init__(self, manifest: Manifest, problems: Sequence[Problem]) -> None:
        lines = [f"{manifest.source}:{manifest.line(problem.location)}: {problem}" for problem in problems]
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


def validate(manifest: Manifest) -> GRPOJob:
    """Return the job in a manifest.

    Raises:
        InvalidJobError: with all problems, each by file, line, field and sentence.
    """
    job, problems = check(manifest.data)
    if job is None or problems:
        raise InvalidJobError(manifest, problems)
    return job


def check(data: dict[str, Any]) -> tuple[GRPOJob | None, list[Problem]]:
    """Return (the job, what its rules refuse), or (None, what does not fit the fields)."""
    try:
        # By alias only: the API server knows no snake_case names.
        job = GRPOJob.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        return None, [_of_field(entry) for entry in error.errors()]
    return job, [Problem(location, rule.message) for location, rule in broken_rules(job)]


def _of_field(entry: Any) -> Problem:
    """Put one of pydantic's errors into words."""
    location: Location = tuple(entry["loc"])
    kind, context = entry["type"], entry.get("ctx", {})
    if kind == "extra_forbidden":
        name = str(location[-1])
        close = difflib.get_close_matches(name, _fields_at(location[:-1]), n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}?" if close else "remove it"
        return Problem(location, f"unknown field: {hint}")
    if kind == "missing":
        return Problem(location, "required field is missing")
    if kind == "literal_error":
        return Problem(location, f"is {entry['input']!r}, but must be {context['expected']}")
    message = entry["msg"][:1].lower() + entry["msg"][1:]
    return Problem(location, f"is {_short(entry['input'])}: {message}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _fields_at(location: Location) -> list[str]:
    """Return the names of the fields that the model at a location has."""
    model: type[Model] | None = GRPOJob
    for step in location:
        if isinstance(step, int) or model is None:
            continue  # an item of a list has the model that the list's field named
        model = next(
            (_model_in(field.annotation) for field in model.model_fields.values() if field.alias == step), None
        )
    return [field.alias for field in model.model_fields.values() if field.alias] if model else []


def _model_in(annotation: Any) -> type[Model] | None:
    """Return the API model that a type is, or holds (`Lora | None`, `Annotated[list[EnvVar], …]`)."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
