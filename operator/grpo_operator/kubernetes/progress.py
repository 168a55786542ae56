"""Rank 0's progress, asked for over HTTP at the pod's address."""

import logging
from collections.abc import Iterable
from typing import Any

import aiohttp
from grpo_api.progress import Progress
from pydantic import ValidationError

from . import labels
from .observe_pod import INDEX

logger = logging.getLogger(__name__)

Manifest = dict[str, Any]

MAX_BYTES = 65536
"""An answer is well below a kilobyte; what pods send is not trusted to be."""


def rank_zero(pods: Iterable[Manifest]) -> Manifest | None:
    """Return the running pod of rank 0 of the newest attempt that has one."""
    found = [
        pod
        for pod in pods
        if pod["metadata"]["labels"].get(labels.COMPONENT) == "trainer"
        and (pod["metadata"].get("annotations") or {}).get(INDEX) == "0"
        and pod.get("status", {}).get("phase") == "Running"
        and pod.get("status", {}).get("podIP")
    ]
    return max(found, key=lambda pod: int(pod["metadata"]["labels"].get(labels.ATTEMPT, 0)), default=None)


async def ask(session: aiohttp.ClientSession, pod: Manifest, port: int, limit: float) -> Progress | None:
    """Return what rank 0 answers within `limit` seconds, or None where it does not (yet)."""
    address = pod["status"]["podIP"]
    host = f"[{address}]" if ":" in address else address
    try:
        async with session.get(
            f"http://{host}:{port}/progress", timeout=aiohttp.ClientTimeout(total=limit), allow_redirects=False
        ) as response:
            if response.status != 200:
                return None
            text = b""
            async for chunk in response.content.iter_any():
                text += chunk
                if len(text) > MAX_BYTES:
                    return None
            return Progress.model_validate_json(text)
    except (aiohttp.ClientError, TimeoutError, ValidationError) as error:
        logger.debug("no progress from %s: %s", pod["metadata"]["name"], error)
        return None
