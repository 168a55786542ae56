import asyncio
from typing import Any, cast

import pytest
from grpo_operator import reasons
from grpo_operator.kubernetes import kinds
from grpo_operator.kubernetes.client import Client
from grpo_operator.kubernetes.named_objects import is_valid_name, named_objects
from grpo_operator.kubernetes.snapshot import read
from grpo_operator.state import Fault

from tests.unit.operator_kubernetes.jobs import grpo_job


def found(**spec: object) -> set[tuple[str, str, str]]:
    return {(each.kind.kind, each.name, each.field) for each in named_objects(grpo_job(**spec))}


def test_a_job_that_names_nothing():
    assert found() == set()


def test_all_fields_that_name_objects():
    assert found(
        hub={"tokenSecret": {"name": "hf"}, "cacheVolume": "hub"},
        checkpoint={"volume": {"claimName": "models"}},
        rewards={"functions": [{"function": "r:f"}], "codeFrom": {"configMap": "code"}},
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}],
        envFrom=[{"configMapRef": {"name": "c1"}}],
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        trainer={"pod": {"volumes": [{"name": "w", "secret": {"secretName": "s2"}}]}},
        reference={"pod": {"volumes": [{"name": "x", "configMap": {"name": "c2"}}]}},
    ) == {
        ("Secret", "hf", "hub.tokenSecret"),
        ("PersistentVolumeClaim", "hub", "hub.cacheVolume"),
        ("PersistentVolumeClaim", "models", "checkpoint.volume.claimName"),
        ("ConfigMap", "code", "rewards.codeFrom"),
        ("Secret", "s1", "env"),
        ("ConfigMap", "c1", "envFrom"),
        ("PersistentVolumeClaim", "data", "volumes"),
        ("Secret", "s2", "trainer.pod.volumes"),
        ("ConfigMap", "c2", "reference.pod.volumes"),
    }


def test_optional_ones_and_those_of_a_reference_that_is_not_run_do_not_count():
    optional = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}]
    pod = {"volumes": [{"name": "x", "configMap": {"name": "c"}}]}
    assert found(env=optional, reference={"pod": pod}, optimization={"beta": 0}) == set()


def test_an_object_named_twice_counts_once():
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "models"}}]
    assert len(found(checkpoint={"volume": {"claimName": "models"}}, volumes=volumes)) == 1


def test_what_a_missing_one_means():
    (named,) = named_objects(grpo_job(hub={"tokenSecret": {"name": "hf"}}))
    assert named.kind == kinds.SECRET
    assert named.missing().reason == reasons.MISSING_SECRET
    assert named.missing().message == "Secret hf, named by hub.tokenSecret, does not exist"


@pytest.mark.parametrize("name", ["a", "hf-token", "a.b-c.d", "0", "a" * 253])
def test_names_that_can_exist(name: str):
    assert is_valid_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "A", "-a", "a-", "a..b", "a_b", "a%2fb", "a\n", "a" * 254]
)
def test_names_that_cannot(name: str):
    assert not is_valid_name(name)


def test_a_name_that_cannot_exist_is_missing_and_never_asked_for():
    asked: list[str] = []

    class Recorder:
        """In place of the client: remembers what it is asked for, and has nothing."""

        async def get(self, kind: kinds.Kind, namespace: str, name: str, **_: Any) -> None:
            asked.append(name)

        async def list(self, *_: Any, **__: Any) -> list[Any]:
            return []

    elsewhere = "../../team-b/secrets/prod-db"
    volumes = [
        {"name": "v", "persistentVolumeClaim": {"claimName": "../x"}},
        {"name": "w", "secret": {"secretName": elsewhere}},
    ]
    job = grpo_job(volumes=volumes)
    snapshot = asyncio.run(read(cast("Client", Recorder()), job))
    assert sorted(asked) == ["demo-output", "demo-reference"]
    assert [each.missing() for each in snapshot.missing] == [
        Fault(reasons.MISSING_CLAIM, "volumes: '../x' is no valid name of a PersistentVolumeClaim"),
        Fault(reasons.MISSING_SECRET, f"volumes: '{elsewhere}' is no valid name of a Secret"),
    ]
