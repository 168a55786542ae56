from typing import Any

import pytest
from grpo_api import env
from grpo_api.exit_codes import ExitCode
from grpo_operator.environment import reference_arguments, trainer_environment
from grpo_operator.kubernetes.places import places
from grpo_operator.kubernetes.render import attempt_job, output_claim, reference_children, render, token_secret
from grpo_operator.kubernetes.settings import Settings
from grpo_operator.state import AttemptTarget, Plan, ReferenceTarget

from tests.unit.operator_kubernetes.jobs import UID, grpo_job

SETTINGS = Settings(namespace="grpo-system", trainer_image="grpo/trainer:1", reference_image="grpo/refserver:1")


def trainer(settings: Settings = SETTINGS, attempt: int = 2, **spec: Any) -> dict[str, Any]:
    job = grpo_job(**spec)
    environment = trainer_environment(job, attempt, places(job, settings))
    return attempt_job(job, AttemptTarget(attempt, job.spec.trainer.replicas, environment), settings)


def reference(settings: Settings = SETTINGS, **spec: Any) -> dict[str, Any]:
    job = grpo_job(**spec)
    target = ReferenceTarget(job.spec.reference.replicas, reference_arguments(job, places(job, settings)))
    return reference_children(job, target, settings)[-1]


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["spec"]["template"]["spec"]


def environment(manifest: dict[str, Any]) -> dict[str, Any]:
    variables = pod(manifest)["containers"][0]["env"]
    assert len({each["name"] for each in variables}) == len(variables), "no name twice"
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in variables}


def mounts(manifest: dict[str, Any]) -> dict[str, str]:
    return {each["mountPath"]: each["name"] for each in pod(manifest)["containers"][0]["volumeMounts"]}


def test_a_job_of_one_attempt():
    job = trainer(trainer={"replicas": 3})
    spec = job["spec"]
    assert job["metadata"]["name"] == "demo-trainer-2"
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "Failed")
    disruption, permanent = spec["podFailurePolicy"]["rules"]
    assert disruption["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert permanent["onExitCodes"]["values"] == [ExitCode.CONFIGURATION, ExitCode.DATA]
    assert {disruption["action"], permanent["action"]} == {"FailJob"}
    assert (pod(job)["restartPolicy"], pod(job)["subdomain"]) == ("Never", "demo-trainer")
    assert pod(job)["terminationGracePeriodSeconds"] == 120


def test_the_environment_contract_is_complete():
    variables = environment(trainer())
    assert set(env.RESERVED) <= set(variables)
    assert variables["PET_MASTER_ADDR"] == "demo-trainer-2-0.demo-trainer"
    assert variables["PET_NODE_RANK"] == {
        "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
    }
    assert variables["GRPO_OUTPUT_DIR"] == f"/output/demo/{UID}"
    assert variables["REF_MODEL_URL"] == "http://demo-reference.lab.svc:8000"


@pytest.mark.parametrize("manifest", [trainer(), reference()], ids=["trainer", "reference"])
def test_pods_are_restricted_and_can_write_where_they_must(manifest: dict[str, Any]):
    spec = pod(manifest)
    container = spec["containers"][0]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for path in ("/tmp", environment(manifest)["HOME"], environment(manifest)["XDG_CACHE_HOME"]):
        assert "emptyDir" in volumes[mounts(manifest)[path]]
    assert volumes[mounts(manifest)["/dev/shm"]]["emptyDir"] == {"medium": "Memory"}
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == UID


def test_what_the_user_sets_wins_by_name():
    job = trainer(
        env=[{"name": "A", "value": "all"}, {"name": "HOME", "value": "/elsewhere"}],
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        trainer={
            "image": "mine:1",
            "imagePullPolicy": "Always",
            "resources": {"requests": {"cpu": 2}, "limits": {"memory": "1Gi"}},
            "pod": {
                "env": [{"name": "A", "value": "trainer"}],
                "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
                "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
                "labels": {"team": "blue", "grpo.dev/job": "stolen"},
                "annotations": {"note": "a"},
                "nodeSelector": {"pool": "gpu"},
                "securityContext": {"runAsUser": 4711},
                "imagePullSecrets": [{"name": "mine"}],
            },
        },
        settings=Settings(image_pull_secrets=("theirs",)),
    )
    spec, container = pod(job), pod(job)["containers"][0]
    assert environment(job)["A"] == "trainer"
    assert environment(job)["HOME"] == "/elsewhere"
    assert (container["image"], container["imagePullPolicy"]) == ("mine:1", "Always")
    assert container["resources"] == {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in container["volumeMounts"]
    assert len([each for each in container["volumeMounts"] if each["mountPath"] == "/data"]) == 1
    assert {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}} in spec["volumes"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert (labels["team"], labels["grpo.dev/job"]) == ("blue", "demo")
    assert spec["securityContext"]["runAsUser"] == 4711
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["imagePullSecrets"] == [{"name": "theirs"}, {"name": "mine"}]
    assert spec["nodeSelector"] == {"pool": "gpu"}


def test_what_is_set_for_one_part_stays_there():
    only = {"pod": {"env": [{"name": "A", "value": "b"}], "nodeSelector": {"pool": "gpu"}}}
    deployment = reference(trainer=only)
    assert "A" not in environment(deployment)
    assert "nodeSelector" not in pod(deployment)
    assert pod(deployment)["containers"][0]["image"] == "grpo/refserver:1"


def test_the_hub():
    job = reference(hub={"tokenSecret": {"name": "hf", "key": "t"}, "offline": True, "cacheVolume": "cache"})
    variables = environment(job)
    assert variables["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "t"}}
    assert variables["HF_HUB_OFFLINE"] == "1"
    hub = mounts(job)[variables["HF_HOME"]]
    assert {"name": hub, "persistentVolumeClaim": {"claimName": "cache"}} in pod(job)["volumes"]


def test_reward_code_is_on_the_python_path():
    rewards = {"functions": [{"function": "mine:f"}], "codeFrom": {"configMap": "code"}}
    assert environment(trainer(rewards=rewards))["PYTHONPATH"] == "/run/grpo/code"
    both = trainer(rewards=rewards, env=[{"name": "PYTHONPATH", "value": "/lib"}])
    assert environment(both)["PYTHONPATH"] == "/run/grpo/code:/lib"
    assert "PYTHONPATH" not in environment(trainer())


def test_the_reference_is_replaced_without_a_surge_and_probed():
    deployment = reference(reference={"replicas": 2})
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    container = pod(deployment)["containers"][0]
    assert container["args"][:2] == ["--host", "0.0.0.0"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert "startupProbe" in container


def test_the_reference_reads_the_runs_files_where_it_is_replaced():
    def output(manifest: dict[str, Any]) -> list[dict[str, Any]]:
        return [each for each in pod(manifest)["containers"][0]["volumeMounts"] if each["name"] == "output"]

    plain = reference()
    assert output(plain) == []
    synced = reference(reference={"sync": {"everySteps": 5}}, checkpoint={"volume": {"claimName": "models"}})
    assert output(synced) == [{"name": "output", "mountPath": "/output", "readOnly": True}]
    assert {"name": "output", "persistentVolumeClaim": {"claimName": "models"}} in pod(synced)["volumes"]
    arguments = pod(synced)["containers"][0]["args"]
    root = arguments[arguments.index("--versions-root") + 1]
    assert root == environment(trainer())["GRPO_OUTPUT_DIR"] + "/versions", "the same path as in the trainer"


def test_the_claim_is_shared_where_the_reference_is_replaced():
    claim = output_claim(grpo_job(reference={"sync": {}}, trainer={"replicas": 1}))
    assert claim is not None
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize(
    ("volume", "replicas", "modes", "owned"),
    [
        ({}, 1, ["ReadWriteOnce"], False),
        ({}, 2, ["ReadWriteMany"], False),
        ({"claimTemplate": {"accessModes": ["ReadWriteOncePod"]}}, 2, ["ReadWriteOncePod"], False),
        ({"retention": "Delete"}, 1, ["ReadWriteOnce"], True),
    ],
)
def test_the_claim(volume: dict[str, Any], replicas: int, modes: list[str], owned: bool):
    claim = output_claim(grpo_job(checkpoint={"volume": volume}, trainer={"replicas": replicas}))
    assert claim is not None
    assert claim["spec"]["accessModes"] == modes
    assert ("ownerReferences" in claim["metadata"]) is owned


def test_a_claim_of_the_users_is_not_made():
    job = trainer(checkpoint={"volume": {"claimName": "models"}})
    assert {"name": "output", "persistentVolumeClaim": {"claimName": "models"}} in pod(job)["volumes"]
    assert output_claim(grpo_job(checkpoint={"volume": {"claimName": "models"}})) is None


def test_each_job_has_a_token_of_its_own():
    job = grpo_job()
    one, two = (token_secret(job)["data"]["token"] for _ in range(2))
    assert one != two
    assert len(one) > 40


def test_the_policies_let_in_who_must_reach_the_pods():
    job = grpo_job()
    plan = Plan(status=job.status, prepare=True, reference=ReferenceTarget(1, ()))
    settings = Settings(namespace="grpo-system", monitoring_namespace="monitoring")
    policies = {
        manifest["metadata"]["name"]: manifest["spec"]
        for manifest in render(job, plan, settings)
        if manifest["kind"] == "NetworkPolicy"
    }
    trainers = {"matchLabels": {"grpo.dev/job": "demo", "grpo.dev/job-uid": UID, "grpo.dev/component": "trainer"}}
    asked, scraped = policies["demo-reference"]["ingress"]
    assert asked == {"from": [{"podSelector": trainers}], "ports": [{"protocol": "TCP", "port": 8000}]}
    peers, operator, _ = policies["demo-trainer"]["ingress"]
    assert peers == {"from": [{"podSelector": trainers}]}
    assert operator["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "grpo-system"}
    assert operator["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    assert scraped["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
