"""Which fields of a GRPOJob may change after its creation, as CEL transition rules.

A run that was started with one set of hyperparameters and went on with another could not be told apart from an
honest one. So everything is fixed but what steers a run from outside; where pods are placed, and how many, may
change while nothing runs.
"""

from collections.abc import Iterator

from .v1alpha1 import Model, Rule, Spec

MUTABLE = frozenset(
    {
        "suspend",
        "ttlSecondsAfterFinished",
        "activeDeadlineSeconds",
        "failurePolicy",
        "logging",
        "cleanupPolicy",
        "reference.replicas",
    }
)
"""May change at any time."""

MUTABLE_WHILE_SUSPENDED = frozenset({"trainer.resources", "trainer.pod", "reference.resources", "reference.pod"})
"""May change while `suspend` is true before and after the change."""


def job_transition_rules() -> Iterator[Rule]:
    """Yield one rule per fixed field of the spec; each reads `self` and `oldSelf`, both the spec."""
    for name, path, optional in _fields():
        if name in MUTABLE:
            continue
        unchanged = f"self.{path} == oldSelf.{path}"
        if optional:
            unchanged = f"has(self.{path}) == has(oldSelf.{path}) && (!has(self.{path}) || {unchanged})"
        if name in MUTABLE_WHILE_SUSPENDED:
            yield Rule(
                f"(self.suspend && oldSelf.suspend) || ({unchanged})",
                f"{name} can change only while the job is suspended: set suspend to true first, or make a new job",
            )
        else:
            yield Rule(unchanged, f"{name} cannot change after creation: make a new job")


def _fields() -> Iterator[tuple[str, str, bool]]:
    """Yield (name, CEL path, whether it may be absent) of each field of the spec and of its groups."""
    for field_name, field in Spec.model_fields.items():
        top = field.alias or field_name
        group = field.annotation
        if not (isinstance(group, type) and issubclass(group, Model)) or top in MUTABLE:
            yield top, top, _optional(Spec, field_name)
            continue
        for inner_name, inner in group.model_fields.items():
            name = inner.alias or inner_name
            yield f"{top}.{name}", f"{top}.{name}", _optional(group, inner_name)


def _optional(model: type[Model], name: str) -> bool:
    """Whether the field may be absent once defaults are filled in."""
    field = model.model_fields[name]
    return not field.is_required() and field.get_default(call_default_factory=True) is None
