"""The environment of local processes: this shell's, the job's, and what a pod would have from its node."""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from grpo_api.v1alpha1 import EnvVar, GRPOJob


class LocalRunError(Exception):
    """A job that cannot run on this machine; the message says what to change."""


def base(job: GRPOJob, own: Mapping[str, str], reward_paths: Sequence[Path]) -> dict[str, str]:
    """Return what all processes of a job get: `own` (this shell's environment), then the job's settings.

    Thread pools are kept to the cores there are, unless the shell says otherwise: ranks and reference share them.
    """
    result = dict(own)
    paths = [str(path.absolute()) for path in reward_paths]
    if paths:
        result["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [own.get("PYTHONPATH", "")])])
    if job.spec.hub.offline:
        result["HF_HUB_OFFLINE"] = "1"
    processes = job.spec.world_size + job.spec.runs_reference
    result.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // processes)))
    result.setdefault("PYTHONUNBUFFERED", "1")
    return result


def variables(job: GRPOJob, part: Iterable[EnvVar]) -> dict[str, str]:
    """Return spec.env and a part's own pod.env; entries with valueFrom are the shell's to set (see `unused`)."""
    return {entry.name: entry.value or "" for entry in [*job.spec.env, *part] if not entry.value_from}


def unused(job: GRPOJob) -> Iterator[str]:
    """Yield the fields that are set but not used in a local run, with what to do instead where there is something."""
    spec = job.spec
    for entry in [*spec.env, *spec.trainer.pod.env, *spec.reference.pod.env]:
        if entry.value_from:
            yield f"env {entry.name} (valueFrom): set {entry.name} in the shell"
    if spec.hub.token_secret:
        yield "hub.tokenSecret: set HF_TOKEN in the shell"
    if spec.hub.cache_volume:
        yield "hub.cacheVolume: HF_HOME of the shell is used"
    if spec.rewards.code_from:
        yield "rewards.codeFrom: give the folder with --reward-path"
    if spec.reference.replicas > 1:
        yield "reference.replicas: one process serves all"
    for name, value in {
        "volumes": spec.volumes or spec.volume_mounts,
        "envFrom": spec.env_from,
        "trainer.resources": spec.trainer.resources.limits or spec.trainer.resources.requests,
        "reference.resources": spec.reference.resources.limits or spec.reference.resources.requests,
        "trainer.image": spec.trainer.image,
        "reference.image": spec.reference.image,
        "checkpoint.volume": spec.checkpoint.volume.claim_name or spec.checkpoint.volume.claim_template,
    }.items():
        if value:
            yield name


def devices(job: GRPOJob, own: Mapping[str, str]) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return (what each trainer pod gets, what the reference gets) so that ranks have a GPU each.

    The reference gets the next ones, as many as its tensorParallelSize, or shares the last ones where there are none
    left. Without GPUs nothing is set.

    Raises:
        LocalRunError: there are GPUs, but too few for the ranks, or for the reference.
    """
    trainer = job.spec.trainer
    gpus = _gpus(own)
    if not gpus:
        return [{} for _ in range(trainer.replicas)], {}
    if len(gpus) < job.spec.world_size:
        raise LocalRunError(
            f"spec.trainer asks for {trainer.replicas} × {trainer.processes_per_pod} ranks, a GPU each, but this "
            f"machine has {len(gpus)}: lower trainer.replicas, or set CUDA_VISIBLE_DEVICES= to run on the CPU"
        )
    spread = job.spec.reference.tensor_parallel_size if job.spec.runs_reference else 1
    if len(gpus) < spread:
        raise LocalRunError(
            f"spec.reference.tensorParallelSize asks for {spread} GPUs, but this machine has {len(gpus)}: lower it, or "
            "set CUDA_VISIBLE_DEVICES= to run on the CPU"
        )
    per_pod = trainer.processes_per_pod
    pods = [gpus[index * per_pod : (index + 1) * per_pod] for index in range(trainer.replicas)]
    first = min(job.spec.world_size, len(gpus) - spread)
    *trainers, reference = ({"CUDA_VISIBLE_DEVICES": ",".join(ids)} for ids in [*pods, gpus[first : first + spread]])
    return trainers, reference


def _gpus(own: Mapping[str, str]) -> list[str]:
    """Return the ids of the GPUs that may be used."""
    if "CUDA_VISIBLE_DEVICES" in own:
        return [gpu for gpu in own["CUDA_VISIBLE_DEVICES"].split(",") if gpu.strip() and gpu != "-1"]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed.stdout.split() if listed.returncode == 0 else []
