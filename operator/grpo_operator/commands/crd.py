"""`grpo crd`."""

import click


@click.command(name="crd")
def command() -> None:
    """Print the CustomResourceDefinition of GRPOJob.

    It is made from the API models, CEL rules included: `grpo crd | kubectl apply --server-side -f -`. The Helm
    chart installs the same.
    """
    from grpo_api.crd import custom_resource_definition

    from grpo_operator.manifest import dump

    click.echo(dump([custom_resource_definition()]), nl=False)
