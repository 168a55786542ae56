"""`grpo run`."""

import os
import sys
import uuid
from pathlib import Path

import click

from grpo_operator.commands._manifest import load_job

_INTERRUPTED = 128


@click.command(name="run")
@click.argument("file", metavar="JOB.yaml")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder of all runs; this one's files go to OUTPUT/<job>/<uid>.",
)
@click.option(
    "--reward-path",
    "reward_paths",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Folder with reward modules, in place of rewards.codeFrom (repeatable).",
)
@click.option("--resume", metavar="UID|DIR", help="Go on with an earlier run of this job from its newest checkpoint.")
@click.option(
    "--result",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write how it ended to this file, as JSON.",
)
def command(file: str, output: Path, reward_paths: tuple[Path, ...], resume: str | None, result: Path | None) -> None:
    """Run a GRPOJob on this machine, without Kubernetes.

    The operator's own plan is carried out with processes where a cluster would have pods: one reference server, and
    a trainer launcher per trainer pod, with the same environment, restarts and status. Relative paths of model and
    dataset are relative to the current folder. GPUs are shared out, one per rank, if there are any.

    Ctrl-C lets the trainer save a checkpoint and ends everything; a second one ends it at once. The exit status is 0
    if the job has Succeeded, 1 if it has Failed, 128 + the signal's number if it was interrupted.

    \b
    OUTPUT/<job>/<uid>/
      job.yaml       the job with its status       reward.png    plot of the rewards
      logs/          what every process printed    metrics/      metrics.jsonl, TensorBoard files
      checkpoints/   to go on from                 final/        the trained model
    """
    from rich.console import Console

    from grpo_operator.local.adapter import LocalAdapter, Programs
    from grpo_operator.local.environs import LocalRunError, unused
    from grpo_operator.local.outcome import Outcome, draw_plot
    from grpo_operator.local.resume import resume as resume_run
    from grpo_operator.local.run_files import RunFiles, RunFilesError, check_result
    from grpo_operator.local.runner import RunInterruptedError, Runner
    from grpo_operator.table import Display

    job = load_job(file)
    console = Console(highlight=False, soft_wrap=True)
    try:
        if resume is not None:
            job, files = resume_run(job, output, resume)
        else:
            metadata = job.metadata.model_copy(update={"uid": str(uuid.uuid4())})
            job = job.model_copy(update={"metadata": metadata})
            files = RunFiles.of(output, job)
        adapter = LocalAdapter(job, files, Programs.installed(job), os.environ, reward_paths)
    except (LocalRunError, RunFilesError) as error:
        raise click.ClickException(str(error)) from error
    if job.spec.suspend:
        raise click.ClickException("spec.suspend is true: a local run would wait for ever; set it to false")
    try:
        files.check_writable()
        if result is not None:
            check_result(result)
    except RunFilesError as error:
        raise click.ClickException(str(error)) from error
    for field in unused(job):
        console.print(f"not used in a local run: spec.{field}", style="dim")
    console.print(f"files: {files.folder}")
    display = Display(console)
    runner = Runner(job, files, adapter, watch=display, say=console.print)
    try:
        with display:
            runner.run()
    except RunInterruptedError as signal:
        console.print(f"ended by {signal}; go on with: grpo run {file} --output {output} --resume {files.folder.name}")
        sys.exit(_INTERRUPTED + signal.number)
    outcome = Outcome(runner.job, files, draw_plot(job, files))
    for line in outcome.lines():
        console.print(line)
    if result is not None:
        result.write_text(outcome.to_json())
    sys.exit(0 if runner.job.status.phase == "Succeeded" else 1)
