"""The kinds of objects the operator reads and writes, and where the API server keeps them."""

from dataclasses import dataclass
from urllib.parse import quote

from grpo_api import v1alpha1


@dataclass(frozen=True)
class Kind:
    """One kind of namespaced object."""

    group: str
    """API group; empty: the core group."""
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """`apiVersion` of a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of one object, of all in a namespace, or of all in the cluster.

        Every part is one segment of the path, whatever it contains: a name leads nowhere else.

        Raises:
            ValueError: a part is empty, `.` or `..`.
        """
        parts = ["apis", self.group] if self.group else ["api"]
        parts.append(self.version)
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/" + "/".join(_segment(part) for part in parts)


def _segment(part: str) -> str:
    if part in ("", ".", ".."):  # which HTTP clients resolve, even where they are quoted
        raise ValueError(f"{part!r} cannot be part of an API path")
    return quote(part, safe="")


GRPO_JOB = Kind(v1alpha1.GROUP, v1alpha1.VERSION, v1alpha1.KIND, v1alpha1.PLURAL)
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
EVENT = Kind("", "v1", "Event", "events")
JOB = Kind("batch", "v1", "Job", "jobs")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
POD = Kind("", "v1", "Pod", "pods")
SECRET = Kind("", "v1", "Secret", "secrets")
SERVICE = Kind("", "v1", "Service", "services")

WATCHED = (DEPLOYMENT, JOB, POD, SERVICE, CONFIG_MAP, NETWORK_POLICY, CLAIM)
"""Kinds of children that are watched. Secrets are not: a right to watch one is a right to read them all."""

_ALL = {(kind.api_version, kind.kind): kind for kind in (GRPO_JOB, EVENT, SECRET, *WATCHED)}


def of(manifest: dict[str, object]) -> Kind:
    """Return the kind of a manifest."""
    return _ALL[str(manifest["apiVersion"]), str(manifest["kind"])]
