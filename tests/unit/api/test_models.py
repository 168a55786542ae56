"""GRPOJob models: names on the wire, defaults, derived sizes."""

import pytest
from grpo_api.v1alpha1 import GRPOJob, Model
from pydantic import ValidationError


def job(**spec: object) -> GRPOJob:
    base = {
        "model": {"name": "m"},
        "dataset": {"name": "d"},
        "rewards": {"functions": [{"function": "accuracy"}]},
    }
    return GRPOJob.model_validate({"metadata": {"name": "run"}, "spec": base | spec})


def models(root: type[Model]) -> set[type[Model]]:
    """Every model reachable from one by its subclasses."""
    return {root}.union(*(models(child) for child in root.__subclasses__()))


def test_names_on_the_wire_are_the_ones_users_write():
    spec = job(generation={"ds3GatherForGeneration": False}).to_manifest()["spec"]
    assert spec["generation"]["ds3GatherForGeneration"] is False
    assert spec["optimization"]["useBiasCorrectionKl"] is True
    assert spec["optimization"]["adamBeta1"] == 0.9


def test_only_beta_differs_from_trl():
    """Names and defaults are TRL's: compared with GRPOConfig's own fields."""
    import dataclasses

    from trl import GRPOConfig

    fields = {field.name: field for field in dataclasses.fields(GRPOConfig)}
    spec = job().spec
    different = {}
    for group in (spec.generation, spec.optimization):
        for name in type(group).model_fields:
            if name in fields and fields[name].default is not dataclasses.MISSING:
                ours, theirs = getattr(group, name), fields[name].default
                if ours != (getattr(theirs, "value", theirs)):
                    different[name] = (theirs, ours)
    assert different.pop("beta") == (0.0, 0.04)
    # Absent means automatic here: the trainer looks at the free memory.
    assert different.pop("ds3_gather_for_generation") == (True, None)
    assert different == {}


@pytest.mark.parametrize("field", ["learningrate", "learning_rat"])
def test_unknown_fields_are_refused(field: str):
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        job(optimization={field: 1.0})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_are_finite(value: float):
    with pytest.raises(ValidationError, match="finite"):
        job(optimization={"learningRate": value})


def test_sizes_that_follow_from_the_spec():
    spec = job(
        trainer={"replicas": 3, "processesPerPod": 2},
        optimization={"perDeviceTrainBatchSize": 4, "gradientAccumulationSteps": 5},
    ).spec
    assert (spec.world_size, spec.steps_per_generation, spec.generation_batch_size) == (6, 5, 120)


@pytest.mark.parametrize(
    ("spec", "uses", "runs"),
    [
        ({}, True, True),
        ({"optimization": {"beta": 0}}, False, False),
        ({"reference": {"url": "http://elsewhere:8000"}}, True, False),
    ],
)
def test_when_a_reference_is_used_and_run(spec: dict[str, object], uses: bool, runs: bool):
    assert (job(**spec).spec.uses_reference, job(**spec).spec.runs_reference) == (uses, runs)


def test_every_field_is_documented():
    undocumented = [
        f"{model.__name__}.{name}"
        for model in models(Model)
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert undocumented == []


def test_a_manifest_read_back_is_the_same_job():
    first = job(trainer={"replicas": 2}, checkpoint={"volume": {"claimName": "c"}})
    assert GRPOJob.model_validate(first.to_manifest()) == first
