"""`grpo evaluate`."""

import os
import sys

import click


@click.command(
    name="evaluate",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Measure a model's rewards on a dataset, greedy and sampled.

    All arguments go to the trainer's evaluation; `grpo evaluate --help` prints them.
    """
    # The operator has no torch: the evaluation is the trainer's, and replaces this process.
    os.execv(sys.executable, [sys.executable, "-m", "grpo_trainer.evaluate", *arguments])  # noqa: S606
