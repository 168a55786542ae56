"""The labels of children, and the selectors that find them."""

from collections.abc import Mapping
from typing import Literal

from grpo_api.v1alpha1 import GROUP, GRPOJob

JOB = f"{GROUP}/job"
JOB_UID = f"{GROUP}/job-uid"
"""Tells the children of a job from those of an earlier one of its name, which may still be ending."""
COMPONENT = f"{GROUP}/component"
ATTEMPT = f"{GROUP}/attempt"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "grpo-operator"

Component = Literal["reference", "trainer", "shared"]

OPERATOR_PODS = {"app.kubernetes.io/name": "grpo", "app.kubernetes.io/component": "operator"}
"""Labels of the operator's own pods, as the chart sets them."""


def child(job: GRPOJob, component: Component, attempt: int | None = None) -> dict[str, str]:
    """Return the labels of a child."""
    labels = {**pods(job, component), MANAGED_BY: MANAGER}
    if attempt is not None:
        labels[ATTEMPT] = str(attempt)
    return labels


def of_job(job: GRPOJob) -> dict[str, str]:
    """Return the labels that select everything of a job."""
    return {JOB: job.metadata.name, JOB_UID: job.metadata.uid}


def pods(job: GRPOJob, component: Component) -> dict[str, str]:
    """Return the labels that select the pods of one part of a job. They never change: selectors are immutable."""
    return {**of_job(job), COMPONENT: component}


def selector(labels: Mapping[str, str]) -> str:
    """Return labels in the words of a label selector."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
