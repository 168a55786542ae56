"""The labels of children, and the selectors that find them."""

from collections.abc import Mapping
from typing import Literal

from grpo_api.v1alpha1 import GROUP

JOB = f"{GROUP}/job"
COMPONENT = f"{GROUP}/component"
ATTEMPT = f"{GROUP}/attempt"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "grpo-operator"

Component = Literal["reference", "trainer", "shared"]

OPERATOR_PODS = {"app.kubernetes.io/name": "grpo", "app.kubernetes.io/component": "operator"}
"""Labels of the operator's own pods, as the chart sets them."""


def child(job: str, component: Component, attempt: int | None = None) -> dict[str, str]:
    """Return the labels of a child."""
    labels = {JOB: job, COMPONENT: component, MANAGED_BY: MANAGER}
    if attempt is not None:
        labels[ATTEMPT] = str(attempt)
    return labels


def pods(job: str, component: Component) -> dict[str, str]:
    """Return the labels that select the pods of one part of a job. They never change: selectors are immutable."""
    return {JOB: job, COMPONENT: component}


def selector(labels: Mapping[str, str]) -> str:
    """Return labels in the words of a label selector."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
