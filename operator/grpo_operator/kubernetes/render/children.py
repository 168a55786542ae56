"""All children of a job, as the plan wants them."""

from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.kubernetes.settings import Settings
from grpo_operator.state import Plan, ReferenceTarget

from .claim import output_claim
from .config_map import config_map
from .meta import Manifest
from .policies import reference_policy, trainer_policy
from .reference import reference_deployment
from .secret import token_secret
from .services import reference_service, trainer_service
from .trainer import attempt_job


def prepared(job: GRPOJob, settings: Settings) -> list[Manifest]:
    """Return what is applied before any pod: configuration, the trainer's Service and policy."""
    return [config_map(job), trainer_service(job, settings), trainer_policy(job, settings)]


def reference_children(job: GRPOJob, target: ReferenceTarget, settings: Settings) -> list[Manifest]:
    """Return the reference server: policy and Service first, then the pods they are for."""
    return [
        reference_policy(job, settings),
        reference_service(job, settings),
        reference_deployment(job, target, settings),
    ]


def render(job: GRPOJob, plan: Plan, settings: Settings) -> list[Manifest]:
    """Return every manifest that the plan creates or applies (for `grpo render`; the token is a new random one)."""
    manifests: list[Manifest] = []
    if plan.prepare:
        claim = output_claim(job)
        manifests += [token_secret(job), *([claim] if claim else []), *prepared(job, settings)]
    if plan.reference is not None:
        manifests += reference_children(job, plan.reference, settings)
    if plan.attempt is not None:
        manifests.append(attempt_job(job, plan.attempt, settings))
    return manifests
