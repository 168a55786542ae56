"""What the tests ask of the API server, as an administrator, in plain JSON."""

import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import httpx
import yaml
from grpo_operator.kubernetes import kinds
from grpo_operator.kubernetes.kinds import Kind

from tools.cluster.control_plane import ControlPlane

Manifest = dict[str, Any]
T = TypeVar("T")


def wait(condition: Callable[[], T], what: str, timeout: float = 20) -> T:
    """Return the first true value of `condition`; fail, naming `what` and the last value, after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout:.0f} s still waiting for {what}; last seen: {value!r}")
        time.sleep(0.05)


class Refused(Exception):
    """The API server's answer to a request it refused."""

    def __init__(self, answer: Manifest) -> None:
        super().__init__(answer.get("message", ""))
        self.status = int(answer.get("code", 0))
        self.messages = [cause.get("message", "") for cause in (answer.get("details") or {}).get("causes") or []]


class Api:
    """One administrator's connection."""

    def __init__(self, plane: ControlPlane) -> None:
        pki = plane.folder / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
        config = yaml.safe_load(plane.kubeconfig.read_text())
        self._http = httpx.Client(base_url=config["clusters"][0]["cluster"]["server"], verify=context, timeout=30)

    def close(self) -> None:
        self._http.close()

    def serves(self, kind: Kind) -> bool:
        """Whether objects of the kind can be listed."""
        return self._http.get(kind.path()).status_code == 200

    def exists(self, path: str) -> bool:
        """Whether there is an object at a path."""
        return self._http.get(path).status_code == 200

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        response = self._http.get(kind.path(namespace, name))
        return None if response.status_code == 404 else self._answer(response)

    def list(self, kind: Kind, namespace: str, labels: str = "") -> list[Manifest]:
        items = self._answer(self._http.get(kind.path(namespace), params={"labelSelector": labels}))["items"]
        return list(items)

    def create(self, manifest: Manifest, namespace: str, *, dry_run: bool = False) -> Manifest:
        """Create an object, refusing unknown fields, as `kubectl apply` does."""
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return self._answer(self._http.post(kinds.of(manifest).path(namespace), json=manifest, params=query))

    def patch(self, kind: Kind, namespace: str, name: str, body: Any, subresource: str | None = None) -> Manifest:
        """Merge fields into an object (a list: JSON patch operations)."""
        content_type = "application/json-patch+json" if isinstance(body, list) else "application/merge-patch+json"
        return self._answer(
            self._http.patch(kind.path(namespace, name, subresource), json=body, headers={"Content-Type": content_type})
        )

    def delete(self, kind: Kind, namespace: str, name: str) -> None:
        self._answer(self._http.delete(kind.path(namespace, name)))

    def request(self, method: str, path: str, **arguments: Any) -> Manifest:
        return self._answer(self._http.request(method, path, **arguments))

    @staticmethod
    def _answer(response: httpx.Response) -> Manifest:
        answer: Manifest = response.json()
        if response.is_error:
            raise Refused(answer)
        return answer


def names(objects: Iterable[Manifest]) -> set[str]:
    return {each["metadata"]["name"] for each in objects}
