"""One job on the stage: the API server, the operator, the played kubelet and rank 0's endpoint, in one place."""

from dataclasses import dataclass
from typing import Any

from grpo_api.progress import Progress, Termination
from grpo_operator.kubernetes import kinds

from tests.integration.operator.api import Api, Manifest, wait
from tests.integration.operator.kubelet import PlayedKubelet
from tests.integration.operator.manifests import grpo_job
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.progress_server import ProgressServer


@dataclass
class Stage:
    """What a test of a job's life needs."""

    api: Api
    namespace: str
    operator: OperatorProcess
    rank_zero: ProgressServer
    name: str

    @property
    def kubelet(self) -> PlayedKubelet:
        return PlayedKubelet(self.api, self.namespace, self.name)

    def child(self, suffix: str) -> str:
        """Name of a child."""
        return f"{self.name}-{suffix}"

    def create(self, **spec: Any) -> Manifest:
        return self.api.create(grpo_job(self.name, **spec), self.namespace)

    def job(self) -> Manifest:
        found = self.api.get(kinds.GRPO_JOB, self.namespace, self.name)
        assert found is not None
        return found

    def status(self) -> Manifest:
        return dict(self.job().get("status") or {})

    def change(self, **spec: Any) -> None:
        self.api.patch(kinds.GRPO_JOB, self.namespace, self.name, {"spec": spec})

    def wait_phase(self, phase: str, reason: str | None = None, timeout: float = 20) -> Manifest:
        """Wait for a phase (and reason); return the status."""
        seen: dict[str, Any] = {}

        def reached() -> bool:
            seen.clear()
            seen.update(self.status())
            return seen.get("phase") == phase and reason in (None, seen.get("reason"))

        try:
            wait(reached, f"phase {phase} {reason or ''}", timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\nstatus: {seen}\noperator:\n{self.operator.text()}") from None
        return seen

    def wait_job(self, attempt: int) -> Manifest:
        """Wait for an attempt's Job."""
        name = self.child(f"trainer-{attempt}")
        try:
            return wait(lambda: self.api.get(kinds.JOB, self.namespace, name), f"Job {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nstatus: {self.status()}\noperator:\n{self.operator.text()}") from None

    def start_training(self, attempt: int = 0, replicas: int = 2) -> list[Manifest]:
        """Bring the job to Running: reference ready, all trainer pods running, a first step made."""
        self.kubelet.run_reference()
        pods = self.kubelet.run_attempt(attempt, replicas)
        self.make_steps(1, attempt)
        self.wait_phase("Running", "Training")
        return pods

    def make_steps(self, step: int, attempt: int = 0, **fields: Any) -> None:
        """Have rank 0 tell that a step is done."""
        self.rank_zero.progress = Progress(
            attempt=attempt, phase="training", step=step, total_steps=5, reward=0.25 * step, **fields
        )

    def succeed(self, pods: list[Manifest]) -> None:
        """End all pods well, as a trainer does that has reached its last step."""
        uid = self.job()["metadata"]["uid"]
        path = f"/output/{self.name}/{uid}/final"
        done = Termination(reason="Succeeded", message="trained", step=5, model_path=path, exit_code=0)
        for pod in pods:
            self.kubelet.end(pod, 0, done)

    def children(self) -> dict[str, set[str]]:
        """Return the names of all children by kind."""
        found = {}
        for kind in (*kinds.WATCHED, kinds.SECRET):
            listed = self.api.list(kind, self.namespace, f"grpo.dev/job={self.name}")
            if listed:
                found[kind.kind] = {each["metadata"]["name"] for each in listed}
        return found
