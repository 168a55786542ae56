from typing import Any

from grpo_api.rules import broken_rules
from grpo_api.v1alpha1 import GRPOJob


def job(**groups: Any) -> GRPOJob:
    spec = {"model": {"name": "m"}, "dataset": {"name": "d"}, "rewards": {"functions": [{"function": "accuracy"}]}}
    return GRPOJob.model_validate(
        {"apiVersion": "grpo.dev/v1alpha1", "kind": "GRPOJob", "metadata": {"name": "x"}, "spec": spec | groups}
    )


def test_a_good_job_breaks_none() -> None:
    assert list(broken_rules(job())) == []


def test_broken_rules_come_with_their_place() -> None:
    broken = list(
        broken_rules(
            job(
                generation={"engine": "vllm", "ds3GatherForGeneration": True},
                optimization={"beta": 0.0},
                reference={"url": "http://r"},
            )
        )
    )
    assert {location for location, _ in broken} == {("spec",), ("spec", "generation")}
    messages = " ".join(rule.message for _, rule in broken)
    assert "ds3GatherForGeneration has no effect with generation.engine vllm" in messages
    assert "reference.url has no effect with optimization.beta 0" in messages


def test_rules_in_lists_have_their_index() -> None:
    places = {
        location for location, _ in broken_rules(job(env=[{"name": "A", "value": "1"}, {"name": "GRPO_ATTEMPT"}]))
    }
    assert places
    assert all(place[0] == "spec" for place in places)


def test_a_model_by_itself_starts_at_the_empty_place() -> None:
    places = [location for location, _ in broken_rules(job(generation={"numGenerations": 1}).spec)]
    assert places == [()]
