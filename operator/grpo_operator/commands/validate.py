"""`grpo validate`."""

import sys

import click

from grpo_operator.commands._manifest import load_manifest
from grpo_operator.validate import InvalidJobError, validate


@click.command(name="validate")
@click.argument("files", nargs=-1, required=True, metavar="JOB.yaml...")
def command(files: tuple[str, ...]) -> None:
    """Check GRPOJobs as the API server would, without a cluster.

    Fields, types, defaults and the CEL rules are those of the CRD. Each problem is printed with its file and line,
    the field and what to do. `-` reads standard input. The exit status is 1 if a job is not valid.
    """
    valid = True
    for file in files:
        manifest = load_manifest(file)
        try:
            job = validate(manifest)
        except InvalidJobError as error:
            valid = False
            click.echo(str(error), err=True)
        else:
            click.echo(f"{file}: GRPOJob {job.metadata.name} is valid")
    sys.exit(0 if valid else 1)
