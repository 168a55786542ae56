"""The status of a job that does not fit the models: it was made under a CRD of another version. Pure."""

from datetime import datetime
from typing import Any

from pydantic import ValidationError

from grpo_operator import reasons

Manifest = dict[str, Any]

MAX_MESSAGE = 2048


def invalid_status(raw: Manifest, error: ValidationError, now: datetime) -> Manifest:
    """Return the job's status with the refusal in it, and everything else as it was: a run that went on under an
    older operator keeps its record."""
    old = raw.get("status") or {}
    message = describe(error)[:MAX_MESSAGE]
    condition = {
        "type": "Accepted",
        "status": "False",
        "reason": reasons.INVALID_SPEC,
        "message": message,
        "lastTransitionTime": now.replace(microsecond=0).isoformat().replace("+00:00", "Z"),
        "observedGeneration": raw["metadata"].get("generation", 1),
    }
    conditions = []
    for present in old.get("conditions") or []:
        if present["type"] != "Accepted":
            conditions.append(present)
        elif present["status"] == "False":
            condition["lastTransitionTime"] = present["lastTransitionTime"]
    return {
        "phase": "Pending",
        **old,
        "reason": reasons.INVALID_SPEC,
        "message": message,
        "conditions": [condition, *conditions],
    }


def describe(error: ValidationError) -> str:
    """Return what is wrong with a job, field by field."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
