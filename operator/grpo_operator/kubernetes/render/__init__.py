"""Manifests from the plan: one file per kind of child. Pure: the same plan gives the same text."""

from .children import prepared, reference_children, render
from .claim import claim_name, output_claim
from .meta import Manifest
from .secret import token_secret
from .trainer import attempt_job

__all__ = [
    "Manifest",
    "attempt_job",
    "claim_name",
    "output_claim",
    "prepared",
    "reference_children",
    "render",
    "token_secret",
]
