"""The operator as a user installs it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.support import Helm, Images, Kubectl

CHART = Path(__file__).resolve().parents[2] / "charts/grpo"


@dataclass(frozen=True)
class Operator:
    """The installed operator."""

    kubectl: Kubectl
    """In the operator's namespace."""
    deployment: str

    def log(self) -> str:
        """All lines so far."""
        return self.kubectl("logs", f"deployment/{self.deployment}")

    def restarts(self) -> int:
        """How often its container has ended and was started again: each time would be a fault of ours."""
        [pod] = self.kubectl.get("pods", "-l", "app.kubernetes.io/component=operator")["items"]
        return int(pod["status"]["containerStatuses"][0]["restartCount"])

    def rss_megabytes(self) -> float:
        """Resident memory of the operator's process."""
        script = "print(open('/proc/1/status').read())"
        status = self.kubectl("exec", f"deployment/{self.deployment}", "--", "python", "-c", script)
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found, status
        return int(found[1]) / 1000


def install(helm: Helm, kubectl: Kubectl, images: Images) -> Operator:
    """`helm install grpo charts/grpo` in a namespace of the restricted Pod Security Standard, and wait for it."""
    kubectl("create", "namespace", kubectl.namespace)
    kubectl("label", "namespace", kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted")
    values = []
    for part in ("operator", "refserver", "trainer"):
        repository, tag = getattr(images, part).rsplit(":", 1)
        values += ["--set", f"images.{part}.repository={repository}", "--set", f"images.{part}.tag={tag}"]
    try:
        helm("install", "grpo", str(CHART), "--wait", "--timeout", "90s", *values)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kubectl.diagnosis()}") from None
    return Operator(kubectl, "grpo")
