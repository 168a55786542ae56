"""Deleting a job, or its namespace: Kubernetes' own garbage collection, no finalizer, the model stays."""

import time

from grpo_operator.kubernetes import kinds

from tests.integration.operator.api import Api, wait
from tests.integration.operator.stage import Stage

COLLECTED = 60
"""Seconds for the garbage collector, which looks for new kinds every 30 s only."""


def test_only_the_claim_outlives_the_job(stage: Stage) -> None:
    stage.create()
    stage.start_training()
    assert "finalizers" not in stage.job()["metadata"]
    assert not any("kopf" in name for name in stage.job()["metadata"].get("annotations", {}))
    stage.api.delete(kinds.GRPO_JOB, stage.namespace, stage.name)
    wait(
        lambda: stage.children() == {"PersistentVolumeClaim": {stage.child("output")}},
        "all children but the claim to go",
        COLLECTED,
    )
    claim = stage.api.get(kinds.CLAIM, stage.namespace, stage.child("output"))
    assert claim is not None
    assert claim["metadata"].get("deletionTimestamp") is None


def test_a_claim_with_retention_delete_goes_with_the_job(stage: Stage) -> None:
    stage.create(checkpoint={"volume": {"retention": "Delete"}})
    stage.kubelet.await_pods("reference", 1)
    stage.api.delete(kinds.GRPO_JOB, stage.namespace, stage.name)

    def going() -> bool:
        claim = stage.api.get(kinds.CLAIM, stage.namespace, stage.child("output"))
        return claim is None or claim["metadata"].get("deletionTimestamp") is not None

    wait(going, "the claim's deletion", COLLECTED)


def test_a_job_made_anew_under_the_same_name_starts_afresh(stage: Stage) -> None:
    first = stage.create()["metadata"]["uid"]
    stage.start_training()
    stage.api.delete(kinds.GRPO_JOB, stage.namespace, stage.name)
    second = stage.create()["metadata"]["uid"]
    assert first != second

    def fresh() -> bool:
        found = stage.api.get(kinds.DEPLOYMENT, stage.namespace, stage.child("reference"))
        return bool(found and found["metadata"]["ownerReferences"][0]["uid"] == second)

    wait(fresh, "the new job's own reference server", COLLECTED)
    stage.kubelet.run_reference()
    wait(lambda: stage.wait_job(0)["metadata"]["ownerReferences"][0]["uid"] == second, "the new job's own attempt 0")
    assert stage.status()["restarts"] == 0
    assert stage.status()["disruptions"] == 0


def test_a_namespace_is_not_held_up(own_stage: Stage, api: Api) -> None:
    stage = own_stage
    stage.create(trainer={"terminationGracePeriodSeconds": 4})
    stage.start_training()
    stage.operator.stop()  # not even by an operator that is gone
    api.request("DELETE", f"/api/v1/namespaces/{stage.namespace}")

    # Kubernetes looks again after half the longest grace period of the pods there were.
    wait(lambda: not api.exists(f"/api/v1/namespaces/{stage.namespace}"), "the namespace to be gone", COLLECTED)


def test_nothing_is_created_in_a_terminating_namespace(own_stage: Stage, api: Api) -> None:
    stage = own_stage
    # A finalizer of somebody else keeps a job (and so the namespace) in the state of being deleted.
    stage.create()
    stage.kubelet.await_pods("reference", 1)
    api.patch(kinds.GRPO_JOB, stage.namespace, stage.name, {"metadata": {"finalizers": ["example.org/hold"]}})
    api.request("DELETE", f"/api/v1/namespaces/{stage.namespace}")
    wait(lambda: "Service" not in stage.children(), "the children to go", COLLECTED)
    touched = stage.operator.lines()
    time.sleep(2)  # long enough for a wrong operator to make them again
    assert "Service" not in stage.children()
    assert stage.operator.lines() == touched
    api.patch(kinds.GRPO_JOB, stage.namespace, stage.name, {"metadata": {"finalizers": None}})
    wait(lambda: api.get(kinds.GRPO_JOB, stage.namespace, stage.name) is None, "the job to go", COLLECTED)
