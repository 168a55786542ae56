"""`grpo`: the command line. Each command is a file in `commands/`, imported only when it is used."""

from importlib import import_module

import click

_COMMANDS = {
    "run": "Run a GRPOJob on this machine, without Kubernetes.",
    "validate": "Check a GRPOJob as the API server would.",
    "render": "Print the Kubernetes objects a GRPOJob becomes.",
    "crd": "Print the CustomResourceDefinition.",
    "operator": "Run the operator against a cluster.",
    "evaluate": "Measure a model's rewards on a dataset.",
}


class _Lazy(click.Group):
    """A group whose commands are imported on use: the operator stays small, and --help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"grpo_operator.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="grpo-kubernetes")
def main() -> None:
    """GRPO fine-tuning from one GRPOJob: a reference server and a multi-pod DeepSpeed trainer.

    \b
    On a cluster:   kubectl apply -f job.yaml, then kubectl get grpo
    On this machine: grpo run job.yaml
    """


if __name__ == "__main__":
    main()
