"""`grpo render`."""

from base64 import b64encode
from datetime import UTC, datetime

import click

from grpo_operator.commands._manifest import load_job

_PLACEHOLDER = b64encode(b"made by the operator").decode()


@click.command(name="render")
@click.argument("file", metavar="JOB.yaml")
@click.option("-n", "--namespace", help="Namespace, where the job names none (default: default).")
def command(file: str, namespace: str | None) -> None:
    """Print the Kubernetes objects that the operator makes of a GRPOJob.

    Shown is the moment at which the first trainer attempt starts. Images and pull policy are those of the operator's
    environment (GRPO_OPERATOR_TRAINER_IMAGE and so on). The uid, which the API server gives, is shown as zeros, and
    the token as a placeholder.
    """
    from grpo_operator.kubernetes.places import places
    from grpo_operator.kubernetes.render import render
    from grpo_operator.kubernetes.settings import Settings, SettingsError
    from grpo_operator.manifest import dump
    from grpo_operator.plan import plan
    from grpo_operator.state import Observed, Reference

    job = load_job(file)
    known = {"uid": job.metadata.uid or "00000000-0000-0000-0000-000000000000"}
    if namespace:
        known["namespace"] = namespace
    job = job.model_copy(update={"metadata": job.metadata.model_copy(update=known)})
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    replicas = job.spec.reference.replicas
    ready = Reference(exists=True, desired=replicas, ready=replicas, pods=replicas)
    made = plan(job, Observed(places=places(job, settings), reference=ready), datetime.now(UTC))
    manifests = render(job, made, settings)
    for manifest in manifests:
        if manifest["kind"] == "Secret":
            manifest["data"] = dict.fromkeys(manifest["data"], _PLACEHOLDER)
    click.echo(dump(manifests), nl=False)
