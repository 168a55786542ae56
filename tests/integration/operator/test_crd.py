"""The CRD on a real API server: each rule refuses with its own sentence, and `grpo validate` says the same."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from grpo_api.v1alpha1 import GRPOJob, Model
from grpo_operator.validate import check

from tests.integration.operator.api import Api
from tests.integration.operator.crd_cases import CASES, FIXED, MUTABLE, NAMES
from tests.integration.operator.manifests import grpo_job

Manifest = dict[str, Any]


def models_in(annotation: Any) -> Iterator[type[Model]]:
    """Every model that a field's type holds."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def sentences(model: type[Model], seen: set[type[Model]]) -> set[str]:
    """The sentences of a model's rules, and of all models in it."""
    if model in seen:
        return set()
    seen.add(model)
    found = {rule.message for rule in model.rules}
    for field in model.model_fields.values():
        for nested in models_in(field.annotation):
            found |= sentences(nested, seen)
    return found


@pytest.fixture(scope="module")
def apply(api: Api, kubectl: Any) -> Any:
    """`kubectl apply` of a manifest, by the API server's dry run; returns kubectl's message, empty if it is taken."""

    def run(manifest: Manifest, *args: str) -> str:
        try:
            kubectl("apply", "-f", "-", *args, stdin=json.dumps(manifest))
        except RuntimeError as error:
            return str(error)
        return ""

    return run


def test_every_rule_has_a_case():
    without = [
        sentence
        for sentence in sentences(GRPOJob, set())
        if not sentence.startswith(tuple(beginning for beginning, _ in CASES)) and "metadata.name" not in sentence
    ]
    assert without == []


def test_the_valid_job_is_taken(apply: Any):
    assert apply(grpo_job(), "--dry-run=server") == ""
    assert check(grpo_job())[1] == []


@pytest.mark.parametrize(("sentence", "changes"), CASES, ids=[beginning for beginning, _ in CASES])
def test_a_rule_refuses_with_its_sentence(apply: Any, sentence: str, changes: Manifest):
    manifest = grpo_job(**changes)
    assert sentence in apply(manifest, "--dry-run=server")
    told = [problem.sentence for problem in check(manifest)[1]]
    assert any(one.startswith(sentence) for one in told), told


@pytest.mark.parametrize("name", NAMES)
def test_names_that_children_cannot_carry_are_refused(apply: Any, name: str):
    assert name in apply(grpo_job(name), "--dry-run=server")
    assert "metadata.name" in "".join(problem.sentence for problem in check(grpo_job(name))[1])


def test_the_longest_name_is_taken(apply: Any):
    assert apply(grpo_job("a" * 40), "--dry-run=server") == ""


@pytest.mark.parametrize(
    "changes", [{"optimization": {"learningRatee": 1.0}}, {"modle": {}}, {"reference": {"pod": {"hostNetwork": True}}}]
)
def test_unknown_fields_are_refused(apply: Any, changes: Manifest):
    assert "unknown field" in apply(grpo_job(**changes), "--dry-run=server")
    job, problems = check(grpo_job(**changes))
    assert job is None
    assert problems


def test_a_reward_function_that_is_none_is_refused(apply: Any):
    manifest = grpo_job(rewards={"functions": [{"function": "acuracy"}]})
    assert "spec.rewards.functions[0].function" in apply(manifest, "--dry-run=server")
    assert check(manifest)[0] is None


def test_names_of_objects_cannot_lead_elsewhere(apply: Any):
    manifest = grpo_job(hub={"tokenSecret": {"name": "../../other/secrets/theirs"}})
    assert "spec.hub.tokenSecret.name" in apply(manifest, "--dry-run=server")
    assert check(manifest)[0] is None


def test_defaults_are_those_of_the_models(api: Api, kubectl: Any, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(grpo_job()))
    stored = json.loads(kubectl("get", "grpo", "demo", "-n", namespace, "-o", "json"))["spec"]
    assert stored == GRPOJob.model_validate(grpo_job()).to_manifest()["spec"]


def test_what_may_change_after_creation(apply: Any, kubectl: Any, namespace: str):
    here = ("-n", namespace)
    assert apply(grpo_job(), *here) == ""
    for sentence, changes in FIXED:
        assert sentence in apply(grpo_job(**changes), *here)
    for changes in MUTABLE:
        assert apply(grpo_job(**changes), *here, "--dry-run=server") == ""
    assert apply(grpo_job(suspend=True), *here) == ""
    assert apply(grpo_job(suspend=True, trainer={"resources": {"limits": {"cpu": 4}}}), *here) == ""
    # Taking suspend back and changing something in one go is not "while suspended".
    assert "trainer.resources can change only" in apply(grpo_job(), *here)
