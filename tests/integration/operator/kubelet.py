"""The kubelet's part, played by the test: there is no node, so pods run and end as the test writes their status.

(A real kubelet with real containers is in the e2e tests.) All else is real: API server, garbage collector, Job,
Deployment and quota controllers, and the operator.
"""

from datetime import UTC, datetime
from typing import Any

from grpo_api.progress import Termination
from grpo_operator.kubernetes import kinds, labels

from tests.integration.operator.api import Api, Manifest, wait


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PlayedKubelet:
    """Writes the status of the pods of one job."""

    def __init__(self, api: Api, namespace: str, job: str) -> None:
        self._api, self._namespace, self._job = api, namespace, job

    def pods(self, component: str, attempt: int | None = None) -> list[Manifest]:
        wanted = {labels.JOB: self._job, labels.COMPONENT: component}
        if attempt is not None:
            wanted[labels.ATTEMPT] = str(attempt)
        return self._api.list(kinds.POD, self._namespace, labels.selector(wanted))

    def await_pods(self, component: str, count: int, attempt: int | None = None) -> list[Manifest]:
        """Wait for the controllers to create the pods."""

        def found() -> list[Manifest]:
            pods = [pod for pod in self.pods(component, attempt) if not pod["metadata"].get("deletionTimestamp")]
            return pods if len(pods) == count else []

        return wait(found, f"{count} pods of {component}, attempt {attempt}")

    def run_reference(self) -> None:
        """Wait for the reference's pod, and have it become ready."""
        for pod in self.await_pods("reference", 1):
            self.run(pod)

    def run_attempt(self, number: int, count: int) -> list[Manifest]:
        """Wait for the pods of an attempt, and have them run. Rank 0 answers at 127.0.0.1."""
        pods = self.await_pods("trainer", count, number)
        for pod in pods:
            self.run(pod)
        return sorted(pods, key=lambda pod: pod["metadata"]["name"])

    def run(self, pod: Manifest) -> None:
        status = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "startTime": now(),
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": now()}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [self._container(pod, {"running": {"startedAt": now()}}, ready=True)],
        }
        self._write(pod, status)

    def wait_reason(self, pod: Manifest, reason: str, message: str) -> None:
        """Have the container wait for a reason, such as ImagePullBackOff."""
        waiting = {"waiting": {"reason": reason, "message": message}}
        self._write(pod, {"phase": "Pending", "containerStatuses": [self._container(pod, waiting)]})

    def unschedulable(self, pod: Manifest, message: str) -> None:
        """The scheduler's part: no node can take the pod."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": now(),
        }
        self._write(pod, {"phase": "Pending", "conditions": [condition]})

    def event(self, pod: Manifest, reason: str, message: str) -> None:
        """Tell something about a pod by an Event."""
        meta = pod["metadata"]
        about = {"kind": "Pod", "name": meta["name"], "namespace": self._namespace, "uid": meta["uid"]}
        self._api.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{meta['name']}.{reason.lower()}", "namespace": self._namespace},
                "involvedObject": about,
                "type": "Warning",
                "reason": reason,
                "message": message,
                "lastTimestamp": now(),
            },
            self._namespace,
        )

    def end(self, pod: Manifest, code: int, termination: Termination | None = None, reason: str = "") -> None:
        """Have the container end with an exit code."""
        ended: dict[str, Any] = {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            "startedAt": now(),
            "finishedAt": now(),
        }
        if termination is not None:
            ended["message"] = termination.to_log()
        present = self._api.get(kinds.POD, self._namespace, pod["metadata"]["name"])
        kept = [
            each
            for each in ((present or {}).get("status", {}).get("conditions") or [])
            if each["type"] == "DisruptionTarget"
        ]
        conditions = [
            {"type": "Ready", "status": "False", "reason": "PodCompleted" if code == 0 else "PodFailed"},
            {"type": "ContainersReady", "status": "False"},
        ]
        self._write(
            pod,
            {
                "phase": "Succeeded" if code == 0 else "Failed",
                "conditions": [*kept, *({**each, "lastTransitionTime": now()} for each in conditions)],
                "containerStatuses": [self._container(pod, {"terminated": ended})],
            },
        )

    def bind(self, pod: Manifest, node: str) -> None:
        """The scheduler's part: from now on the pod is gone only once its kubelet says so."""
        name = pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._api.request("POST", kinds.POD.path(self._namespace, name, "binding"), json=body)

    def remove(self, pod: Manifest) -> None:
        """Take a terminating pod away, as the kubelet does once its containers have ended."""
        self._api.request(
            "DELETE", kinds.POD.path(self._namespace, pod["metadata"]["name"]), params={"gracePeriodSeconds": 0}
        )

    def disrupt(self, pod: Manifest, reason: str, message: str) -> None:
        """Mark a pod as ended from outside."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now(),
        }
        operation = {"op": "add", "path": "/status/conditions/-", "value": condition}
        self._api.patch(kinds.POD, self._namespace, pod["metadata"]["name"], [operation], "status")

    @staticmethod
    def _container(pod: Manifest, state: Manifest, *, ready: bool = False) -> Manifest:
        container = pod["spec"]["containers"][0]
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
        }

    def _write(self, pod: Manifest, status: Manifest) -> None:
        self._api.patch(kinds.POD, self._namespace, pod["metadata"]["name"], {"status": status}, "status")
