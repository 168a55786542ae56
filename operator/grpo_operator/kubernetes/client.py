"""Calls to the API server, as plain JSON.

Made with `kubernetes.aio`, the asyncio half of the `kubernetes` package: it brings configuration, certificates, token
renewal and connections; its thousand model classes are not used, so that what is written is exactly what is rendered.
Measured with kopf 1.45 (which imports `kubernetes` anyway, where it is installed): 61 MB, with kubernetes.aio 70 MB,
with lightkube instead 66 MB, with its models and httpx. For 4 MB another dependency is not worth it; the synchronous
half would need a thread for each call.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from . import kinds
from .kinds import Kind

FIELD_MANAGER = "grpo-operator"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 500
"""Objects per page of a list."""

Manifest = dict[str, Any]


class ApiError(Exception):
    """The API server answered with an error.

    Attributes:
        status: the HTTP status.
        reason: its CamelCase word, such as AlreadyExists.
        causes: CamelCase words of the details, such as NamespaceTerminating.
    """

    def __init__(self, status: int, reason: str, message: str, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.causes = causes


class NoClusterError(Exception):
    """Nothing that can be read says how the API server is reached; the message says what to do about it."""


async def load_configuration() -> Configuration:
    """Return how the API server is reached: the file $KUBECONFIG, the pod's ServiceAccount, or ~/.kube/config.

    Raises:
        NoClusterError: it cannot be read.
    """
    configuration = Configuration()
    file = os.environ.get("KUBECONFIG")
    in_pod = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and not file
    try:
        if in_pod:
            kubernetes_config.load_incluster_config(client_configuration=configuration)
        else:
            await kubernetes_config.load_kube_config(config_file=file or None, client_configuration=configuration)
    except Exception as error:  # the loader stumbles with whatever type a malformed file brings about
        where = "the pod's ServiceAccount" if in_pod else f"KUBECONFIG ({file})" if file else "~/.kube/config"
        raise NoClusterError(
            f"no cluster is known: {where} cannot be used: {error}; set KUBECONFIG to a kubeconfig file with a "
            "current-context, or run in a pod with a ServiceAccount"
        ) from error
    return configuration


class Client:
    """One connection pool to the API server. Every call ends after `timeout` seconds at the latest.

    Raises:
        ApiError: the answer is an error.
        aiohttp.ClientError, TimeoutError: there is no answer.
    """

    def __init__(self, api: ApiClient, timeout: float = 20) -> None:
        self._api = api
        self._timeout = timeout

    @staticmethod
    async def connect() -> "Client":
        """Return a client by the configuration of the environment."""
        return Client(ApiClient(await load_configuration()))

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server knows the kind."""
        path = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
        try:
            found = await self._call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return any(resource["name"] == kind.plural for resource in found["resources"])

    async def get(self, kind: Kind, namespace: str, name: str, *, metadata_only: bool = False) -> Manifest | None:
        """Return an object, or None if it does not exist."""
        try:
            return await self._call("GET", kind.path(namespace, name), accept=METADATA if metadata_only else None)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> list[Manifest]:
        """Return all objects of a namespace (or of the cluster) that the selectors match, read from etcd."""
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE)}
        items: list[Manifest] = []
        while True:
            accept = METADATA_LIST if metadata_only else None
            page = await self._call("GET", kind.path(namespace), query=query, accept=accept)
            items += page.get("items") or []  # null, where a list of metadata is empty
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return items

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object; one that exists is the error AlreadyExists (409)."""
        path = kinds.of(manifest).path(manifest["metadata"]["namespace"])
        return await self._call("POST", path, query={"fieldManager": FIELD_MANAGER}, body=manifest)

    async def apply(self, manifest: Manifest) -> Manifest:
        """Apply an object server-side: our fields become as given, whoever changed them; other fields stay."""
        meta = manifest["metadata"]
        return await self._call(
            "PATCH",
            kinds.of(manifest).path(meta["namespace"], meta["name"]),
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=manifest,
            content_type="application/apply-patch+yaml",
        )

    async def patch(self, kind: Kind, namespace: str, name: str, body: Manifest) -> Manifest:
        """Merge fields into an object."""
        return await self._call(
            "PATCH", kind.path(namespace, name), body=body, content_type="application/merge-patch+json"
        )

    async def replace_status(self, manifest: Manifest) -> Manifest:
        """Replace an object's status; one that has changed since it was read is the error Conflict (409)."""
        meta = manifest["metadata"]
        path = kinds.of(manifest).path(meta["namespace"], meta["name"], "status")
        return await self._call("PUT", path, query={"fieldManager": FIELD_MANAGER}, body=manifest)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete an object, if it is still the one with this uid; its dependents follow in the background."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        try:
            await self._call("DELETE", kind.path(namespace, name), body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
        accept: str | None = None,
    ) -> Manifest:
        _, url, headers, data, _ = await self._api.param_serialize(
            method,
            path,
            query_params=[(key, value) for key, value in (query or {}).items() if value],
            header_params={"Accept": accept or "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = await self._api.call_api(method, url, headers, data, _request_timeout=self._timeout)
        text = await response.read()
        if not 200 <= response.status < 300:
            raise _error(response.status, text)
        answer: Manifest = json.loads(text)
        return answer


def _error(status: int, text: bytes) -> ApiError:
    """Return the error for an answer, whose body is a meta/v1 Status, or whatever a proxy on the way wrote."""
    try:
        answer = json.loads(text)
        causes = (answer.get("details") or {}).get("causes") or []
        return ApiError(
            status,
            answer.get("reason") or "",
            answer.get("message") or f"HTTP {status}",
            tuple(cause.get("reason") or "" for cause in causes),
        )
    except (ValueError, AttributeError):
        return ApiError(status, "", f"HTTP {status}: {text[:200].decode(errors='replace')}")
