from datetime import UTC, datetime
from typing import Any

import pytest
from grpo_api.v1alpha1 import GRPOJob
from grpo_operator.kubernetes.invalid import invalid_status
from pydantic import ValidationError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def status(raw: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(ValidationError) as refusal:
        GRPOJob.model_validate(raw)
    return invalid_status(raw, refusal.value, NOW)


def test_the_field_is_named_and_the_record_kept():
    raw = {
        "metadata": {"name": "demo", "generation": 3},
        "spec": {"model": {"name": "m", "colour": "red"}, "dataset": {"name": "d"}, "rewards": {"functions": []}},
        "status": {"phase": "Running", "restarts": 2, "conditions": [{"type": "ReferenceReady", "status": "True"}]},
    }
    told = status(raw)
    assert (told["reason"], told["phase"], told["restarts"]) == ("InvalidSpec", "Running", 2)
    assert "spec.model.colour" in told["message"]
    assert [each["type"] for each in told["conditions"]] == ["Accepted", "ReferenceReady"]
    assert told["conditions"][0]["observedGeneration"] == 3


def test_the_second_time_nothing_changes():
    raw: dict[str, Any] = {"metadata": {"name": "demo"}, "spec": {}}
    raw["status"] = status(raw)
    assert raw["status"]["phase"] == "Pending"
    with pytest.raises(ValidationError) as refusal:
        GRPOJob.model_validate({"metadata": raw["metadata"], "spec": {}})
    assert invalid_status(raw, refusal.value, datetime(2027, 1, 1, tzinfo=UTC)) == raw["status"]
