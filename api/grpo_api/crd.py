"""GRPOJob models → CustomResourceDefinition: a structural OpenAPI schema with CEL rules. Pure.

What pydantic's JSON schema says in the words of draft 2020-12 is put into those of a structural schema
(apiextensions.k8s.io/v1: OpenAPI v3.0, no $ref, no null type, a default wherever the model has one, so that the
API server and pydantic fill in the same ones).
"""

import enum
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticUndefined, core_schema, to_jsonable_python

from .crd_immutable import job_transition_rules
from .v1alpha1 import GROUP, KIND, PLURAL, VERSION, GRPOJob, Model, Rule

SINGULAR = "grpojob"
SHORT_NAME = "grpo"
COLUMNS = (
    ("Phase", "string", ".status.phase", "The state in one word."),
    ("Step", "string", ".status.progress.steps", "Optimizer steps done and to do."),
    ("Reward", "number", ".status.progress.reward", "Mean reward of the last generation batch."),
    ("Restarts", "integer", ".status.restarts", "New attempts after crashes."),
    ("Reason", "string", ".status.reason", "Why it is in this phase."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since creation."),
)

Schema = dict[str, Any]


def custom_resource_definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition of GRPOJob as a manifest."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": [SHORT_NAME],
                # `kubectl get all` shows a job beside the Deployment and Jobs it owns.
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "description": description}
                        for name, kind, path, description in COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": job_schema()},
                }
            ],
        },
    }


def job_schema() -> Schema:
    """Return the structural schema of a whole GRPOJob."""
    schema = structural_schema(GRPOJob)
    properties = schema["properties"]
    # The API server owns these three: it allows no more than their types here.
    properties["apiVersion"] = {"type": "string"}
    properties["kind"] = {"type": "string"}
    properties["metadata"] = {"type": "object"}
    # No default: an empty status is how one sees that no operator has looked at the job.
    del properties["status"]["default"]
    schema["required"] = ["spec"]
    rules = properties["spec"]["x-kubernetes-validations"]
    rules.extend(_validation(rule) for rule in job_transition_rules())
    return schema


def structural_schema(model: type[Model]) -> Schema:
    """Return the structural schema of one model, everything it refers to written out in place."""
    schema = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    definitions = schema.pop("$defs", {})
    inlined = _inline(schema, definitions)
    assert isinstance(inlined, dict)
    return inlined


class _Generator(GenerateJsonSchema):
    """pydantic's generator, in the dialect of structural schemas but for $ref."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        # An absent field and an explicit null are the same: the API server prunes the null.
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        default = schema.get("default", PydanticUndefined)
        factory = schema.get("default_factory")
        if factory is not None:
            default = factory()  # type: ignore[call-arg]
        if default is PydanticUndefined or default is None:
            return inner
        if isinstance(default, Model):
            # The fields' own defaults apply below an empty object, and so stay written down once. But the API
            # server checks a default by the rules before it fills it in: what they read must be there.
            default = default.model_dump(mode="json", by_alias=True, exclude_none=True) if default.rules else {}
        return {**inner, "default": to_jsonable_python(default)}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        values = [value.value if isinstance(value, enum.Enum) else value for value in schema["expected"]]
        return {"type": "string", "enum": values}

    def union_schema(self, schema: core_schema.UnionSchema) -> JsonSchemaValue:
        kinds = {choice["type"] for choice in schema["choices"] if isinstance(choice, dict)}
        if kinds != {"int", "str"}:
            raise TypeError(f"a structural schema has no union of {sorted(kinds)}: only of int and str")
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}

    def any_schema(self, schema: core_schema.AnySchema) -> JsonSchemaValue:
        return {"x-kubernetes-preserve-unknown-fields": True}

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        result = super().dict_schema(schema)
        result.pop("propertyNames", None)
        if result.get("additionalProperties") in (True, {"x-kubernetes-preserve-unknown-fields": True}):
            del result["additionalProperties"]
            result["x-kubernetes-preserve-unknown-fields"] = True
        return result

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        result = super().model_schema(schema)
        model = schema["cls"]
        # Unknown fields are pruned (or, as kubectl asks, refused) where a schema says nothing.
        if result.pop("additionalProperties", None) is True:
            result["x-kubernetes-preserve-unknown-fields"] = True
        if issubclass(model, Model) and model.rules:
            result["x-kubernetes-validations"] = [_validation(rule) for rule in model.rules]
        return result

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _validation(rule: Rule) -> dict[str, str]:
    return {"rule": rule.cel, "message": rule.message}


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    """Return the node with each $ref replaced by what it names, in OpenAPI v3.0's words."""
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        # What stands beside the reference (a field's own description, its default) wins.
        return _inline({**target, **{key: value for key, value in node.items() if key != "$ref"}}, definitions)
    result = {}
    for key, value in node.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("default", "enum", "x-kubernetes-validations"):
            result[key] = value
        elif key == "properties":
            result[key] = {name: _inline(child, definitions) for name, child in value.items()}
        elif key == "description":
            result[key] = " ".join(value.split())
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            result["minimum" if key == "exclusiveMinimum" else "maximum"] = value
            result[key] = True
        else:
            result[key] = _inline(value, definitions)
    return result
