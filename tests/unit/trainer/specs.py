"""Specs for tests that run nothing."""

from __future__ import annotations

from typing import Any

from grpo_api.v1alpha1 import Spec


def minimal(**groups: Any) -> dict[str, Any]:
    """The least that a spec must say, with `groups` in it."""
    return {
        "model": {"name": "tiny"},
        "dataset": {"name": "prompts.jsonl"},
        "rewards": {"functions": [{"function": "accuracy"}]},
        **groups,
    }


def spec(**groups: Any) -> Spec:
    return Spec.model_validate(minimal(**groups))
