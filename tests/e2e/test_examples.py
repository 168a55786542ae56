"""The example on a real model, with model and data replaced by the small real ones that come as packages."""

from __future__ import annotations

import shutil

import pytest

from tests.assets.arithmetic import write_arithmetic
from tests.assets.smollm2 import cached_smollm2
from tests.e2e.jobs import MOUNT, example, output, read_jsonl
from tests.e2e.operator import Operator
from tests.e2e.support import Kubectl, Volume

pytestmark = pytest.mark.timeout(1500)


def test_the_example_on_a_real_model(kubectl: Kubectl, operator: Operator, volume: Volume):
    shutil.copytree(cached_smollm2(), volume.folder / "SmolLM2-135M-Instruct")
    write_arithmetic(volume.folder / "arithmetic.jsonl")
    manifest = example("numina-math.yaml")
    spec = manifest["spec"]
    # Replaced: model, data, and what this machine is too small for. All else is the example's.
    spec["model"] |= {"name": f"{MOUNT}/SmolLM2-135M-Instruct", "dtype": "float32"}
    spec["dataset"]["name"] = f"{MOUNT}/arithmetic.jsonl"
    spec["hub"] = {"offline": True}
    spec["generation"] |= {"numGenerations": 4, "maxCompletionLength": 24}
    spec["optimization"] |= {"perDeviceTrainBatchSize": 2, "gradientAccumulationSteps": 1, "maxSteps": 2}
    spec["reference"]["resources"] = {}
    spec["trainer"] |= {"replicas": 2, "resources": {}, "deepspeed": {"config": {"zero_optimization": SMALL_BUCKETS}}}
    spec["checkpoint"] |= {"volume": {"claimName": volume.claim}}
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": volume.claim}}]
    spec["volumeMounts"] = [{"name": "data", "mountPath": MOUNT}]
    kubectl.apply(manifest)
    try:
        kubectl("wait", "--for=condition=Succeeded", "grpo/numina-math", "--timeout=900s", timeout=910)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kubectl.diagnosis()}") from None
    folder = output(kubectl, volume, "numina-math")
    rows = read_jsonl(folder / "metrics/metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    # Policy and reference are the same model before the first step: no KL yet.
    assert abs(rows[0]["kl"]) < 1e-4
    assert (folder / "final/model.safetensors").stat().st_size > 500e6
    assert 0 <= rows[0]["rewards/accuracy/mean"] <= 1


SMALL_BUCKETS = {"reduce_bucket_size": 5_000_000, "stage3_prefetch_bucket_size": 0}
"""DeepSpeed's buckets are made for large GPUs: half a billion elements each."""
