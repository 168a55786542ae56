import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from grpo_api.crd import custom_resource_definition, job_schema, structural_schema
from grpo_api.crd_immutable import MUTABLE, MUTABLE_WHILE_SUSPENDED, job_transition_rules
from grpo_api.v1alpha1 import GRPOJob, Model

MINIMAL = {
    "metadata": {"name": "demo"},
    "spec": {
        "model": {"name": "m"},
        "dataset": {"name": "d"},
        "rewards": {"functions": [{"function": "accuracy"}]},
    },
}


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


def fill(value: Any, schema: dict[str, Any]) -> Any:
    """Fill in defaults the way the API server does (apiextensions: a default applies where the field is absent)."""
    if isinstance(value, dict) and "properties" in schema:
        value = dict(value)
        for name, child in schema["properties"].items():
            if name not in value and "default" in child:
                value[name] = copy.deepcopy(child["default"])
            if name in value:
                value[name] = fill(value[name], child)
        return value
    if isinstance(value, list):
        return [fill(item, schema["items"]) for item in value]
    return value


def test_the_schema_is_structural():
    """apiextensions.k8s.io/v1: types everywhere, no references, no words of newer JSON schema drafts."""
    for path, schema in nodes(job_schema()):
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "$defs", "title", "const", "propertyNames", "allOf", "oneOf"} & set(schema), path
        assert schema.get("exclusiveMinimum") in (None, True), path
        assert not ("properties" in schema and "additionalProperties" in schema), path


def test_everything_that_rules_could_read_is_bounded():
    spec = job_schema()["properties"]["spec"]
    for path, schema in nodes(spec):
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path


def test_every_field_is_described():
    spec = job_schema()["properties"]["spec"]
    assert [path for path, schema in nodes(spec) if not path.endswith("[]") and not schema.get("description")] == []


def test_the_schemas_defaults_are_the_models():
    filled = fill(MINIMAL, job_schema())
    expected = GRPOJob.model_validate(MINIMAL).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert filled["spec"] == expected["spec"]


def test_columns_and_status():
    version = custom_resource_definition()["spec"]["versions"][0]
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "Phase",
        "Step",
        "Reward",
        "Restarts",
        "Reason",
        "Age",
    ]
    assert version["subresources"] == {"status": {}}
    assert "default" not in version["schema"]["openAPIV3Schema"]["properties"]["status"]


def test_it_is_the_same_every_time_and_far_below_the_limit_of_etcd():
    one, two = (json.dumps(custom_resource_definition()) for _ in range(2))
    assert one == two
    assert len(one) < 300_000


def test_a_union_that_no_structural_schema_has_is_refused():
    class Odd(Model):
        """Odd."""

        field: int | float | str
        """Odd."""

    with pytest.raises(TypeError, match="no union of"):
        structural_schema(Odd)


def test_every_field_of_the_spec_is_fixed_or_named_as_mutable():
    spec = job_schema()["properties"]["spec"]
    fixed = {rule.message.split(" ")[0] for rule in job_transition_rules()}
    for top, schema in spec["properties"].items():
        names = {f"{top}.{name}" for name in schema.get("properties", {})}
        assert top in MUTABLE | fixed or names <= MUTABLE | fixed, top
    known = set(spec["properties"]) | {
        f"{top}.{name}" for top, schema in spec["properties"].items() for name in schema.get("properties", {})
    }
    assert known >= MUTABLE | MUTABLE_WHILE_SUSPENDED, "no name is misspelled"
