"""The bearer token between the job's pods."""

import base64
import secrets

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.kubernetes import names, places

from .meta import Manifest, metadata


def token_secret(job: GRPOJob) -> Manifest:
    """Return a Secret with a new random token of 256 bits. It is created once and never rewritten."""
    token = secrets.token_urlsafe(32).encode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(job, names.token(job.metadata.name), "shared"),
        "type": "Opaque",
        "data": {places.TOKEN_FILE: base64.b64encode(token).decode()},
    }
