from typing import Any

from grpo_operator import reasons
from grpo_operator.kubernetes import kinds
from grpo_operator.kubernetes.named_objects import NamedObject
from grpo_operator.kubernetes.observe import observe
from grpo_operator.kubernetes.settings import Settings
from grpo_operator.kubernetes.snapshot import Snapshot
from grpo_operator.state import Observed, Reference

from tests.unit.operator_kubernetes.jobs import UID, grpo_job


def see(**snapshot: Any) -> Observed:
    return observe(grpo_job(), Snapshot(**snapshot), Settings())


def deployment(generation: int = 1, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "demo-reference", "generation": generation},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, **status},
    }


def child(name: str, attempt: int, component: str = "trainer", **fields: Any) -> dict[str, Any]:
    labels = {"grpo.dev/component": component, "grpo.dev/attempt": str(attempt)}
    meta = {"name": name, "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "spec": {"containers": [{"name": "trainer"}]}, **fields}


def condition(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason, "message": message}]}


def test_nothing_is_there_yet():
    seen = see()
    assert seen.reference == Reference()
    assert seen.attempts == ()
    assert seen.places.output_dir == f"/output/demo/{UID}"
    assert seen.places.master_addr == "demo-trainer-{attempt}-0.demo-trainer"
    assert seen.places.reference_url == "http://demo-reference.lab.svc:8000"


def test_a_ready_reference():
    seen = see(deployment=deployment(replicas=1, updatedReplicas=1, readyReplicas=1))
    assert (seen.reference.exists, seen.reference.ready, seen.reference.desired) == (True, 1, 1)


def test_ready_pods_of_an_older_template_do_not_count():
    assert see(deployment=deployment(replicas=1, readyReplicas=1)).reference.ready == 0
    assert see(deployment=deployment(replicas=3, updatedReplicas=2, readyReplicas=3)).reference.ready == 2
    changed = deployment(generation=2, replicas=1, updatedReplicas=1, readyReplicas=1)
    assert see(deployment=changed).reference.ready == 0, "its controller has not seen the change"


def test_a_deployment_being_deleted_does_not_exist():
    going = deployment(replicas=1, updatedReplicas=1, readyReplicas=1)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    seen = see(deployment=going, pods=(child("p", 0, "reference"),))
    assert (seen.reference.exists, seen.reference.ready, seen.reference.pods) == (False, 0, 1)


def test_reference_pods_that_a_quota_refuses():
    status = condition("ReplicaFailure", "FailedCreate", 'pods "x" is forbidden: exceeded quota: small')
    (fault,) = see(deployment=deployment(**status)).reference.faults
    assert fault.reason == reasons.QUOTA_EXCEEDED


def test_attempts_from_jobs_and_from_pods_whose_job_is_gone():
    seen = see(
        jobs=(child("demo-trainer-1", 1, status={}),),
        pods=(child("a", 0, status={"phase": "Running"}), child("b", 1), child("r", 0, "reference")),
    )
    assert [(each.number, each.exists, len(each.pods)) for each in seen.attempts] == [(0, False, 1), (1, True, 1)]


def test_how_a_job_ended():
    complete, failed, failing, going = see(
        jobs=(
            child("demo-trainer-0", 0, status=condition("Complete")),
            child("demo-trainer-1", 1, status=condition("Failed", "PodFailurePolicy", "exit code 65")),
            child("demo-trainer-2", 2, status=condition("FailureTarget", "BackoffLimitExceeded")),
            child("demo-trainer-3", 3, status={}),
        )
    ).attempts
    assert (complete.finished, complete.failure) == ("Complete", None)
    assert failed.finished == "Failed"
    assert failed.failure is not None
    assert failed.failure.reason == "PodFailurePolicy"
    assert failing.finished == "Failed", "bound to fail, though pods of it still run"
    assert going.finished is None


def test_pods_that_the_job_controller_cannot_create():
    def warning(message: str) -> dict[str, Any]:
        about = {"kind": "Job", "name": "demo-trainer-0"}
        return {"involvedObject": about, "reason": "FailedCreate", "message": message}

    job = child("demo-trainer-0", 0, status={})
    for message, reason in (
        ('pods "x" is forbidden: exceeded quota: small', reasons.QUOTA_EXCEEDED),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', reasons.POD_SECURITY_VIOLATION),
        ('error looking up service account lab/x: serviceaccount "x" not found', reasons.MISSING_SERVICE_ACCOUNT),
        ("something else", reasons.FAILED_CREATE),
    ):
        (attempt,) = see(jobs=(job,), events=(warning(message),)).attempts
        assert [fault.reason for fault in attempt.faults] == [reason], message


def test_the_claim():
    def claim(phase: str) -> dict[str, Any]:
        return {"metadata": {"name": "demo-output"}, "status": {"phase": phase}}

    failed = {
        "involvedObject": {"kind": "PersistentVolumeClaim", "name": "demo-output"},
        "reason": "ProvisioningFailed",
        "message": "no ReadWriteMany",
    }
    assert see(claim=claim("Bound")).claim is None
    assert see(claim=claim("Pending")).claim is None, "it may wait for its first pod"
    lost = see(claim=claim("Lost")).claim
    assert lost is not None
    assert lost.reason == reasons.CLAIM_LOST
    refused = see(claim=claim("Pending"), events=(failed,)).claim
    assert refused is not None
    assert refused.reason == reasons.PROVISIONING_FAILED
    assert see(claim=claim("Bound"), events=(failed,)).claim is None


def test_missing_objects():
    (fault,) = see(missing=(NamedObject(kinds.SECRET, "hf", "hub.tokenSecret"),)).missing
    assert fault.reason == reasons.MISSING_SECRET


def test_a_claim_for_one_pod_is_not_enough_for_several():
    def faults(modes: list[str], **spec: Any) -> list[str]:
        claim = {"metadata": {"name": "mine"}, "spec": {"accessModes": modes}, "status": {"phase": "Bound"}}
        seen = observe(grpo_job(**spec), Snapshot(claim=claim), Settings())
        return [fault.reason for fault in seen.missing]

    one, several, synced = {"trainer": {"replicas": 1}}, {"trainer": {"replicas": 2}}, {"reference": {"sync": {}}}
    assert faults(["ReadWriteOncePod"], **one) == []
    assert faults(["ReadWriteOncePod"], **several) == [reasons.CLAIM_NOT_SHARED]
    assert faults(["ReadWriteOncePod"], **one, **synced) == [reasons.CLAIM_NOT_SHARED]
    assert faults(["ReadWriteOnce"], **several, **synced) == [], "its pods may share a node"
    assert faults(["ReadWriteMany"], **several, **synced) == []
