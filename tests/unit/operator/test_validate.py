"""`grpo validate`: sentences that name the field and the remedy, with the line."""

import copy
from pathlib import Path
from typing import Any

import pytest
from grpo_operator.manifest import load, parse
from grpo_operator.validate import InvalidJobError, check, validate

EXAMPLES = Path(__file__).parents[3] / "examples"
GOOD: dict[str, Any] = {
    "apiVersion": "grpo.dev/v1alpha1",
    "kind": "GRPOJob",
    "metadata": {"name": "demo"},
    "spec": {
        "model": {"name": "m"},
        "dataset": {"name": "d"},
        "rewards": {"functions": [{"function": "accuracy"}]},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    at: Any = data
    *groups, field = path.split(".")
    for group in groups:
        at = at[int(group)] if isinstance(at, list) else at.setdefault(group, {})
    at[field] = value
    return data


def sentences(data: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check(data)[1]]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_valid(path: Path):
    validate(load(str(path)))


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (
            "spec.generation.numGeneration",
            8,
            "numGeneration: unknown field: did you mean numGenerations?",
        ),
        ("spec.generation.num_generations", 8, "num_generations: unknown field: did you mean numGenerations?"),
        ("spec.xyzzy", 8, "spec.xyzzy: unknown field: remove it"),
        ("spec.rewards.functions.0.wieght", 1, "spec.rewards.functions[0].wieght: unknown field: did you mean weight?"),
        ("spec.model", {}, "spec.model.name: required field is missing"),
        ("spec.optimization.lossType", "gspo", "is 'gspo', but must be 'grpo', 'bnpo', 'dr_grpo' or 'dapo'"),
        ("spec.trainer.replicas", 0, "spec.trainer.replicas: is 0: input should be greater than or equal to 1"),
        ("spec.trainer.replicas", "2", "spec.trainer.replicas: is '2': input should be a valid integer"),
        ("spec.optimization.beta", float("nan"), "spec.optimization.beta: is nan: input should be a finite number"),
        ("spec.generation.numGenerations", 1, "generation.numGenerations must be at least 2"),
        ("spec.generation.numGenerations", 7, "must be divisible by generation.numGenerations: change one of them"),
        (
            "spec.ttlSecondsAfterFinished",
            1,
            "ttlSecondsAfterFinished is not supported in this version: remove",
        ),
        ("spec.env", [{"name": "PET_NNODES", "value": "1"}], "env sets a reserved name"),
        (
            "spec.trainer.pod.env",
            [{"name": "REF_MODEL_URL", "value": "x"}],
            "trainer.pod: pod.env sets a reserved",
        ),
        ("spec.reference.requestTimeoutSeconds", 600, "reference.requestTimeoutSeconds must be below"),
        ("metadata.name", "Demo", "metadata.name must be at most 40 characters"),
        ("metadata.name", "a" * 41, "metadata.name must be at most 40 characters"),
    ],
)
def test_each_problem_is_one_sentence(path: str, value: Any, sentence: str):
    found = sentences(changed(path, value))
    assert len(found) == 1, found
    assert sentence in found[0]


def test_the_gather_flag_with_vllm_is_refused_by_its_rule():
    data = changed("spec.generation", {"engine": "vllm", "ds3GatherForGeneration": True})
    assert any("ds3GatherForGeneration has no effect with generation.engine vllm" in each for each in sentences(data))


def test_all_problems_come_at_once_with_file_and_line():
    text = (
        "kind: GRPOJob\nmetadata: {name: demo}\nspec:\n  model: {name: m, nam: x}\n  dataset: {name: d}\n  rewards: 3\n"
    )
    with pytest.raises(InvalidJobError) as error:
        validate(parse(text, "job.yaml"))
    first, second = str(error.value).splitlines()
    assert first.startswith("job.yaml:4: spec.model.nam: unknown field: did you mean name?")
    assert second.startswith("job.yaml:6: spec.rewards: is 3:")


def test_no_object_at_all_is_a_problem_and_no_crash():
    for data in ({}, {"kind": "GRPOJob", "metadata": None, "spec": []}, {**GOOD, "spec": {"model": [1]}}):
        job, problems = check(data)
        assert job is None
        assert problems
