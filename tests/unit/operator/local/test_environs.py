"""The environment of local processes."""

from pathlib import Path

import pytest
from grpo_operator.local import environs

from tests.unit.operator.world import make_job


def test_the_shells_environment_is_kept_and_reward_folders_come_first(tmp_path: Path):
    made = environs.base(make_job(), {"PATH": "/bin", "PYTHONPATH": "/old"}, [tmp_path / "a", tmp_path / "b"])
    assert made["PATH"] == "/bin"
    assert made["PYTHONPATH"] == f"{tmp_path}/a:{tmp_path}/b:/old"
    assert "HF_HUB_OFFLINE" not in made
    assert environs.base(make_job(hub__offline=True), {}, [])["HF_HUB_OFFLINE"] == "1"


def test_threads_are_shared_out_unless_the_shell_says_otherwise():
    assert int(environs.base(make_job(trainer__replicas=4096), {}, [])["OMP_NUM_THREADS"]) == 1
    assert environs.base(make_job(), {"OMP_NUM_THREADS": "7"}, [])["OMP_NUM_THREADS"] == "7"


def test_variables_of_the_job_then_of_the_part():
    job = make_job(
        env=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
        trainer__pod={"env": [{"name": "B", "value": "2"}]},
    )
    assert environs.variables(job, job.spec.trainer.pod.env) == {"A": "1", "B": "2"}


def test_fields_that_need_a_cluster_are_named():
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    job = make_job(
        env=[{"name": "WANDB_API_KEY", "valueFrom": secret}],
        hub__tokenSecret={"name": "hub"},
        rewards__codeFrom={"configMap": "code"},
        trainer__resources={"limits": {"nvidia.com/gpu": 1}},
        reference__replicas=2,
    )
    told = "\n".join(environs.unused(job))
    for words in (
        "set WANDB_API_KEY in the shell",
        "set HF_TOKEN",
        "--reward-path",
        "trainer.resources",
        "one process",
    ):
        assert words in told
    assert list(environs.unused(make_job())) == []


def test_each_rank_gets_a_gpu_and_the_reference_the_next():
    job = make_job(trainer__processesPerPod=2)
    pods, reference = environs.devices(job, {"CUDA_VISIBLE_DEVICES": "3,1,0,2,5"})
    assert [pod["CUDA_VISIBLE_DEVICES"] for pod in pods] == ["3,1", "0,2"]
    assert reference == {"CUDA_VISIBLE_DEVICES": "5"}


def test_the_reference_shares_the_last_gpu_where_none_is_left():
    pods, reference = environs.devices(make_job(), {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert [pod["CUDA_VISIBLE_DEVICES"] for pod in pods] == ["0", "1"]
    assert reference == {"CUDA_VISIBLE_DEVICES": "1"}


def test_a_reference_over_several_gpus_gets_as_many():
    job = make_job(reference__tensorParallelSize=2)
    assert environs.devices(job, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"})[1] == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert environs.devices(job, {"CUDA_VISIBLE_DEVICES": "0,1,2"})[1] == {"CUDA_VISIBLE_DEVICES": "1,2"}
    with pytest.raises(environs.LocalRunError, match=r"tensorParallelSize asks for 4 GPUs.*has 3: lower it"):
        environs.devices(make_job(reference__tensorParallelSize=4), {"CUDA_VISIBLE_DEVICES": "0,1,2"})


def test_without_gpus_nothing_is_set():
    assert environs.devices(make_job(), {"CUDA_VISIBLE_DEVICES": ""}) == ([{}, {}], {})


def test_too_few_gpus_are_refused_with_the_way_out():
    with pytest.raises(environs.LocalRunError, match=r"2 × 1 ranks.*has 1: lower trainer.replicas, or set CUDA_VIS"):
        environs.devices(make_job(), {"CUDA_VISIBLE_DEVICES": "0"})
