"""Going on with an older local run: the same folder, hence its newest checkpoint, under the next attempt's number."""

from datetime import UTC, datetime
from pathlib import Path

from grpo_api.v1alpha1 import GRPOJob, LastTermination, Status, TrainerStatus

from grpo_operator import reasons
from grpo_operator.local.run_files import RunFiles, RunFilesError


def resume(job: GRPOJob, output: Path, run: str) -> tuple[GRPOJob, RunFiles]:
    """Return the job under the uid of an older run, and that run's files.

    The job's file may have changed meanwhile (a reward function corrected, more restarts allowed); counts start anew.

    Args:
        run: uid of the run below `output`, or its folder.

    Raises:
        RunFilesError: there is no such run of this job, or it has Succeeded.
    """
    name = job.metadata.name
    folder = Path(run) if Path(run).is_dir() else output / name / run
    files = RunFiles(folder.absolute())
    if files.folder.parent.name != name:
        raise RunFilesError(f"{folder} is no run of {name}: its folder would be {output}/{name}/UID")
    status = files.load_status()
    if status.phase == "Succeeded":
        raise RunFilesError(f"{folder} has Succeeded; the model lies in {status.model_path}")
    metadata = job.metadata.model_copy(update={"uid": files.folder.name})
    return job.model_copy(update={"metadata": metadata, "status": continued(status, datetime.now(UTC))}), files


def continued(status: Status, now: datetime) -> Status:
    """Return the status with which a run goes on: its last attempt ended as by a suspension, and all counts are 0."""
    if status.trainer is None:
        return Status()
    last = LastTermination(
        attempt=status.trainer.attempt,
        cause="Suspend",
        reason=reasons.SUSPENDED,
        message="the earlier run was ended",
        time=now.replace(microsecond=0),
    )
    trainer = TrainerStatus(attempt=status.trainer.attempt, last_termination=last)
    return Status(trainer=trainer, progress=status.progress)
