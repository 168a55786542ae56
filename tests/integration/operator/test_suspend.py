"""Suspending and resuming."""

from grpo_operator.kubernetes import kinds

from tests.integration.operator.api import wait
from tests.integration.operator.stage import Stage


def test_suspend_ends_the_pods_and_resume_is_a_new_attempt(stage: Stage) -> None:
    stage.create()
    stage.start_training()
    stage.change(suspend=True)

    wait(lambda: "Job" not in stage.children(), "the attempt's Job to go")
    wait(lambda: not stage.kubelet.pods("trainer"), "the trainer's pods to go")
    stage.wait_phase("Suspended", "Suspended")
    deployment = stage.api.get(kinds.DEPLOYMENT, stage.namespace, stage.child("reference"))
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 0

    # While suspended, what places the pods may change, and is applied at the resumption.
    stage.change(trainer={"pod": {"nodeSelector": {"pool": "large"}}})
    stage.change(suspend=False)
    stage.kubelet.run_reference()
    job = stage.wait_job(1)
    assert job["spec"]["completions"] == 2
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "large"}
    stage.kubelet.run_attempt(1, 2)
    stage.make_steps(2, attempt=1)
    status = stage.wait_phase("Running")
    assert (status["restarts"], status["disruptions"]) == (0, 0)


def test_a_job_created_suspended_runs_nothing(stage: Stage) -> None:
    stage.create(suspend=True)
    stage.wait_phase("Suspended")
    assert "Job" not in stage.children()
    assert not stage.kubelet.pods("reference")
    stage.change(suspend=False)
    stage.kubelet.run_reference()
    stage.wait_job(0)
