from grpo_operator import reasons
from grpo_operator.kubernetes import kinds
from grpo_operator.kubernetes.named_objects import named_objects

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
