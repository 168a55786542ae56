"""The operator, or the API server, is lost in the middle."""

from grpo_operator.kubernetes import kinds

from tests.integration.operator.api import Api, names, wait
from tests.integration.operator.conftest import StartOperator
from tests.integration.operator.progress_server import ProgressServer
from tests.integration.operator.stage import Stage
from tools.cluster.control_plane import ControlPlane


def test_an_operator_killed_again_and_again_converges(own_stage: Stage) -> None:
    """Killed at each turn of the job's life; each time everything goes on, and nothing is run twice."""
    stage = own_stage

    def restart() -> None:
        stage.operator.kill()
        stage.operator.start()

    stage.create()
    restart()
    stage.kubelet.await_pods("reference", 1)
    stage.operator.kill()
    stage.kubelet.run_reference()
    stage.operator.start()
    uid = stage.wait_job(0)["metadata"]["uid"]
    restart()
    pods = stage.kubelet.run_attempt(0, 2)
    stage.operator.kill()
    stage.kubelet.end(pods[0], 1)
    stage.operator.start()
    stage.wait_job(1)
    stage.operator.kill()
    second = stage.kubelet.run_attempt(1, 2)
    stage.succeed(second)
    stage.operator.start()
    status = stage.wait_phase("Succeeded")

    assert (status["restarts"], status["disruptions"]) == (1, 0)
    jobs = {each["metadata"]["name"]: each["metadata"]["uid"] for each in stage.api.list(kinds.JOB, stage.namespace)}
    assert "demo-trainer-2" not in jobs
    assert jobs.get("demo-trainer-0", uid) == uid
    wait(lambda: "Deployment" not in stage.children(), "the reference's removal")


def test_changes_made_while_no_operator_runs_are_put_back(own_stage: Stage) -> None:
    stage = own_stage
    stage.create()
    stage.start_training()
    stage.operator.stop()
    stage.api.delete(kinds.SERVICE, stage.namespace, "demo-trainer")
    stage.api.patch(kinds.CONFIG_MAP, stage.namespace, "demo-config", {"data": {"config.json": "{}"}})
    stage.operator.start()
    wait(lambda: stage.api.get(kinds.SERVICE, stage.namespace, "demo-trainer"), "the Service")

    def config() -> bool:
        found = stage.api.get(kinds.CONFIG_MAP, stage.namespace, "demo-config")
        return bool(found and found["data"]["config.json"] != "{}")

    wait(config, "the configuration")
    assert stage.status()["trainer"]["attempt"] == 0


def test_the_watches_survive_an_outage_of_the_api_server(own_stage: Stage, plane: ControlPlane) -> None:
    stage = own_stage
    stage.create()
    stage.kubelet.await_pods("reference", 1)
    plane.stop("kube-apiserver")
    try:
        wait(lambda: _complaints(stage) > 0, "the operator to notice", 60)
    finally:
        plane.start("kube-apiserver")
    wait(lambda: stage.api.serves(kinds.GRPO_JOB), "the API server's return", 60)
    stage.kubelet.run_reference()
    stage.wait_job(0)
    pods = stage.kubelet.run_attempt(0, 2)
    stage.make_steps(5)
    stage.succeed(pods)
    stage.wait_phase("Succeeded", timeout=60)
    assert stage.operator.healthy()


def test_two_jobs_of_one_name_in_two_namespaces(
    api: Api, own_namespace: str, shared_namespace: str, start_operator: StartOperator, rank_zero: ProgressServer
) -> None:
    """One operator for the whole cluster."""
    operator = start_operator(progress_port=str(rank_zero.port))
    stages = [Stage(api, namespace, operator, rank_zero, "twin") for namespace in (own_namespace, shared_namespace)]
    for stage in stages:
        stage.create()
    running = [stage.start_training() for stage in stages]
    stages[0].succeed(running[0])
    stages[0].wait_phase("Succeeded")
    assert stages[1].status()["phase"] == "Running"
    assert names(api.list(kinds.JOB, shared_namespace)) == {"twin-trainer-0"}
    stages[1].succeed(running[1])
    stages[1].wait_phase("Succeeded")


def _complaints(stage: Stage) -> int:
    return sum("API server" in line for line in stage.operator.lines())
