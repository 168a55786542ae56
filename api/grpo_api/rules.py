"""The models' CEL rules, evaluated outside the API server: by `grpo validate`, and by a trainer without Kubernetes."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from grpo_api.v1alpha1.base import Model, Rule

Location = tuple[str | int, ...]
"""Where in a model: names of fields (camelCase) and indices of lists."""


def broken_rules(model: Model, location: Location = ()) -> Iterator[tuple[Location, Rule]]:
    """Evaluate the rules of a model and of all models in it; yield those that refuse it, with their place."""
    if model.rules:
        # What the API server evaluates them on: defaults filled in, absent fields left out.
        this = model.model_dump(mode="json", by_alias=True, exclude_none=True)
        for rule in model.rules:
            if not _compiled(rule).execute({"self": this}):
                yield location, rule
    for name, field in type(model).model_fields.items():
        value, here = getattr(model, name), (*location, field.alias or name)
        if isinstance(value, Model):
            yield from broken_rules(value, here)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Model):
                    yield from broken_rules(item, (*here, index))


@cache
def _compiled(rule: Rule) -> Any:
    import cel  # takes a second, and the operator, which trusts the API server, never needs it

    return cel.compile(rule.cel)
