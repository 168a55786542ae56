"""What all commands share that read a job from a file."""

import click
from grpo_api.v1alpha1 import GRPOJob

from grpo_operator.manifest import Manifest, ManifestError, load
from grpo_operator.validate import InvalidJobError, validate


def load_job(source: str) -> GRPOJob:
    """Return the valid job in a file (`-`: standard input); end the command with status 1 and the problems if not."""
    try:
        return validate(load_manifest(source))
    except InvalidJobError as error:
        raise click.ClickException(f"{source} is not valid\n{error}") from error


def load_manifest(source: str) -> Manifest:
    """Return the job in a file as it stands there; end the command with status 1 if there is none."""
    try:
        return load(source)
    except ManifestError as error:
        raise click.ClickException(str(error)) from error
