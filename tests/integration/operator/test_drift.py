"""Children deleted or edited by hand come back within ten seconds."""

from grpo_operator.kubernetes import kinds
from grpo_operator.kubernetes.kinds import Kind

from tests.integration.operator.api import wait
from tests.integration.operator.stage import Stage

PUT_BACK = 10

CHILDREN = [
    (kinds.SERVICE, "reference"),
    (kinds.SERVICE, "trainer"),
    (kinds.DEPLOYMENT, "reference"),
    (kinds.CONFIG_MAP, "config"),
    (kinds.NETWORK_POLICY, "reference"),
    (kinds.NETWORK_POLICY, "trainer"),
]


def test_deleted_children_come_back(stage: Stage) -> None:
    stage.create()
    stage.start_training()
    for kind, suffix in CHILDREN:
        name = stage.child(suffix)
        old = stage.api.get(kind, stage.namespace, name)
        assert old is not None
        stage.api.delete(kind, stage.namespace, name)

        def is_new(kind: Kind = kind, name: str = name, uid: str = old["metadata"]["uid"]) -> bool:
            found = stage.api.get(kind, stage.namespace, name)
            return found is not None and found["metadata"]["uid"] != uid

        wait(is_new, f"{kind.kind} {name} to come back", PUT_BACK)


def test_edited_fields_come_back(stage: Stage) -> None:
    stage.create()
    stage.start_training()
    deployment = stage.api.get(kinds.DEPLOYMENT, stage.namespace, stage.child("reference"))
    assert deployment is not None
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    edited = [*arguments]
    edited[edited.index("--model") + 1] = "another/model"
    path = "/spec/template/spec/containers/0/args"
    stage.api.patch(
        kinds.DEPLOYMENT, stage.namespace, stage.child("reference"), [{"op": "replace", "path": path, "value": edited}]
    )

    def restored() -> bool:
        found = stage.api.get(kinds.DEPLOYMENT, stage.namespace, stage.child("reference"))
        return bool(found and found["spec"]["template"]["spec"]["containers"][0]["args"] == arguments)

    wait(restored, "the reference's --model", PUT_BACK)

    stage.api.patch(kinds.CONFIG_MAP, stage.namespace, stage.child("config"), {"data": {"config.json": "{}"}})
    wait(lambda: _config(stage) != "{}", "the configuration", PUT_BACK)

    stage.api.patch(kinds.NETWORK_POLICY, stage.namespace, stage.child("trainer"), {"spec": {"ingress": [{}]}})

    def closed() -> bool:
        policy = stage.api.get(kinds.NETWORK_POLICY, stage.namespace, stage.child("trainer"))
        return bool(policy and {} not in policy["spec"]["ingress"])

    wait(closed, "the policy", PUT_BACK)


def test_fields_of_others_stay(stage: Stage) -> None:
    stage.create()
    stage.kubelet.await_pods("reference", 1)
    stage.api.patch(
        kinds.SERVICE, stage.namespace, stage.child("reference"), {"metadata": {"annotations": {"team": "blue"}}}
    )
    stage.api.delete(kinds.SERVICE, stage.namespace, stage.child("trainer"))
    wait(lambda: stage.api.get(kinds.SERVICE, stage.namespace, stage.child("trainer")), "the other Service", PUT_BACK)
    service = stage.api.get(kinds.SERVICE, stage.namespace, stage.child("reference"))
    assert service is not None
    assert service["metadata"]["annotations"] == {"team": "blue"}


def test_a_lost_token_is_made_anew(stage: Stage) -> None:
    """Secrets are not watched (a right to watch one is a right to read all): the next look at the job finds it."""
    stage.create()
    stage.kubelet.await_pods("reference", 1)
    stage.api.delete(kinds.SECRET, stage.namespace, stage.child("token"))
    stage.api.patch(kinds.GRPO_JOB, stage.namespace, stage.name, {"metadata": {"annotations": {"look": "here"}}})
    wait(lambda: stage.api.get(kinds.SECRET, stage.namespace, stage.child("token")), "the token", PUT_BACK)


def test_replicas_of_the_reference_may_change_while_it_runs(stage: Stage) -> None:
    stage.create()
    stage.start_training()
    stage.change(reference={"replicas": 3})
    stage.kubelet.await_pods("reference", 3)


def _config(stage: Stage) -> str:
    found = stage.api.get(kinds.CONFIG_MAP, stage.namespace, stage.child("config"))
    return str(found["data"]["config.json"]) if found else "{}"
