"""docs/grpojob.md: every field of a GRPOJob, made from the models."""

from collections.abc import Iterable
from typing import Any

from .v1alpha1 import GRPOJob, Model, Spec, Status

INTRODUCTION = """\
<!-- Made by tools/generate.py from the models in api/grpo_api/v1alpha1. -->
# GRPOJob

`apiVersion: grpo.dev/v1alpha1`, `kind: GRPOJob`, short name `grpo`. Names and defaults are TRL 1.16's in camelCase,
but for `optimization.beta` (0.04 instead of 0: the reference is the point here) and
`generation.ds3GatherForGeneration` (absent: the trainer looks at the free memory).

After creation only `suspend`, `failurePolicy`, `logging`, `cleanupPolicy` and `reference.replicas` can be changed;
while the job is suspended also `resources` and `pod` of both parts.
"""


def reference_page() -> str:
    """Return the page as Markdown: a table for each group of the spec, the status, and what is refused."""
    schema = GRPOJob.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = schema["$defs"]
    sections = [INTRODUCTION]
    seen: set[str] = set()
    for model, path in ((Spec, "spec"), (Status, "status")):
        sections += _sections(definitions, model.__name__, path, seen)
    sections += ["## What is refused\n", *_refusals()]
    return "\n".join(sections).rstrip() + "\n"


def _sections(definitions: dict[str, Any], name: str, path: str, seen: set[str]) -> Iterable[str]:
    """Yield the table of one model, then those of the models in its fields; each model once."""
    if name in seen:
        return
    seen.add(name)
    definition = definitions[name]
    properties = definition.get("properties", {})
    yield f"## `{path}`\n\n{definition.get('description', '')}\n"
    yield "| field | type | default | meaning |\n|---|---|---|---|"
    required = set(definition.get("required", []))
    for field, schema in properties.items():
        default = "**required**" if field in required else _default(schema)
        nested, _ = _reference(schema)
        meaning = schema.get("description") or (definitions[nested].get("description", "") if nested else "")
        yield f"| `{field}` | {_type(schema)} | {default} | {_cell(meaning)} |"
    yield ""
    for field, schema in properties.items():
        nested, suffix = _reference(schema)
        if nested and definitions[nested].get("properties"):
            yield from _sections(definitions, nested, f"{path}.{field}{suffix}", seen)


def _reference(schema: dict[str, Any]) -> tuple[str | None, str]:
    """Return the model that a field holds, and `[]` where it holds a list of them."""
    for option in [schema, *schema.get("anyOf", []), *schema.get("allOf", [])]:
        if "$ref" in option:
            return str(option["$ref"]).rsplit("/", 1)[-1], ""
        if option.get("type") == "array" and "$ref" in option.get("items", {}):
            return str(option["items"]["$ref"]).rsplit("/", 1)[-1], "[]"
    return None, ""


def _type(schema: dict[str, Any]) -> str:
    """Return a field's type in words, with its bounds."""
    options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    return _cell(" or ".join(dict.fromkeys(_one_type(option) for option in options)))


def _one_type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "$ref" in schema:
        return "object"
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_one_type(schema.get('items', {}))}"
    signs = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
    bounds = [f"{sign} {schema[key]:g}" for key, sign in signs if key in schema]
    return " ".join([kind, *([", ".join(bounds)] if bounds else [])])


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    if value is None:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _refusals() -> Iterable[str]:
    """Yield the sentence of every rule, once."""
    yield "Beside types and bounds, the API server refuses a job with one of these sentences:\n"
    sentences: dict[str, None] = {}
    _collect(GRPOJob, sentences, set())
    yield from (f"- {sentence}" for sentence in sentences)


def _collect(model: type[Model], sentences: dict[str, None], seen: set[type[Model]]) -> None:
    if model in seen:
        return
    seen.add(model)
    sentences.update(dict.fromkeys(rule.message for rule in model.rules))
    for field in model.model_fields.values():
        for nested in _models_in(field.annotation):
            _collect(nested, sentences, seen)


def _models_in(annotation: Any) -> Iterable[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)
