"""What the end-to-end tests talk to a cluster with: kubectl, helm, waiting, and a look at what went wrong."""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[2] / "tools"


class CommandError(AssertionError):
    """kubectl or helm failed; the message is its own."""


@dataclass(frozen=True)
class Images:
    """The images under test, by full name."""

    operator: str
    refserver: str
    trainer: str


@dataclass(frozen=True)
class Cluster:
    """A cluster that has the images; `volumes` is the folder behind hostPath volumes, None if out of reach."""

    kubeconfig: Path
    images: Images
    kubectl: str
    helm: str
    volumes: "HostFolder | None"


@dataclass(frozen=True)
class HostFolder:
    """One folder under its two paths: on the node, and here."""

    on_node: Path
    here: Path


@dataclass(frozen=True)
class Volume:
    """A ReadWriteMany claim in the test's namespace, and its folder as the test reaches it."""

    claim: str
    folder: Path


@dataclass(frozen=True)
class Kubectl:
    """kubectl on one cluster, in one namespace unless a call names another."""

    program: str
    kubeconfig: Path
    namespace: str = "default"

    def __call__(self, *args: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Run kubectl and return its output; raises CommandError with its message."""
        return _run([self.program, *self._flags(), *args], stdin, timeout)

    def popen(self, *args: str) -> subprocess.Popen[str]:
        """Start kubectl (port-forward, logs -f) with its output in a pipe; the caller ends it."""
        return subprocess.Popen([self.program, *self._flags(), *args], stdout=subprocess.PIPE, text=True)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply objects."""
        self("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def get(self, *args: str) -> dict[str, Any]:
        """`kubectl get ARGS -o json`, parsed: an object, or a list with `items`."""
        parsed: dict[str, Any] = json.loads(self("get", *args, "-o", "json"))
        return parsed

    def exists(self, *args: str) -> bool:
        """Whether `kubectl get ARGS` finds anything."""
        return bool(self("get", *args, "--ignore-not-found", "-o", "name").strip())

    def wait(self, what: str, condition: Callable[[], Any], timeout: float = 60, interval: float = 0.2) -> Any:
        """Poll `condition` until it returns something true, and return that.

        A CommandError inside it counts as not yet. After `timeout` seconds an AssertionError says `what` did
        not come, with the last error and the state of the namespace.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                result, error = condition(), ""
            except CommandError as caught:
                result, error = None, f" ({caught})"
            if result:
                return result
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout:g} s: {what}{error}\n{self.diagnosis()}")
            time.sleep(interval)

    def diagnosis(self, tail: int = 40) -> str:
        """What a person would look at next: objects, their description, events, and the ends of all logs."""
        sections = [
            ("objects", ["get", "all,pvc,configmap,networkpolicy", "-o", "wide"]),
            ("events", ["get", "events", "--sort-by=.lastTimestamp"]),
            ("grpojobs", ["describe", "grpojobs"]),
            ("pods", ["describe", "pods"]),
        ]
        try:
            pods = self("get", "pods", "-o", "name").split()
        except CommandError:
            pods = []
        log = ["logs", "--all-containers", "--prefix", f"--tail={tail}"]
        sections += [(f"log of {pod}", [*log, pod]) for pod in pods]
        return "\n".join(f"--- {title}\n{self._try(*args)}" for title, args in sections)

    def _try(self, *args: str) -> str:
        try:
            return self(*args)
        except (CommandError, subprocess.TimeoutExpired) as error:
            return str(error)

    def _flags(self) -> list[str]:
        return [f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}"]


@dataclass(frozen=True)
class Helm:
    """helm on one cluster, in one namespace unless a call names another."""

    program: str
    kubeconfig: Path
    namespace: str = "default"

    def __call__(self, *args: str, timeout: float = 180) -> str:
        """Run helm and return its output; raises CommandError with its message."""
        flags = [f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}"]
        return _run([self.program, *args, *flags], None, timeout)


def restricted_pod(name: str, image: str, command: list[str], labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod of one container that the `restricted` Pod Security Standard admits, with a read-only root."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": command,
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def _run(command: list[str], stdin: str | None, timeout: float) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise CommandError(f"{Path(command[0]).name} {' '.join(command[1:])}: {done.stderr.strip()}")
    return done.stdout
