"""No Kubernetes, no launcher of ours: torchrun with TRL's flags."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.trainer.jobs import RUN_SECONDS, Workspace, clean_environment, read_jsonl
from tests.integration.trainer.refserver import ReferenceServer

pytestmark = pytest.mark.timeout(1200)


def test_torchrun_with_trls_flags(workspace: Workspace, refserver: ReferenceServer, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert refserver.token is not None
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "grpo_trainer.main",
        "--model_name_or_path", str(workspace.model),
        "--dtype", "float32",
        "--dataset_name", str(workspace.folder / "prompts.jsonl"),
        "--reward_funcs", "lettercount.letters",
        "--ref_model_url", refserver.url,
        "--ds3_gather_for_generation", "false",
        "--num_generations", "4",
        "--max_completion_length", "6",
        "--per_device_train_batch_size", "4",
        "--max_steps", "2",
        "--learning_rate", "1e-3",
        "--report_to", "tensorboard",
        "--output_dir", str(out),
    ]  # fmt: skip
    done = subprocess.run(
        command,
        env=clean_environment(workspace) | {"GRPO_TOKEN_FILE": str(refserver.token)},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert [row["step"] for row in read_jsonl(out / "metrics/metrics.jsonl")] == [1, 2]
    assert list((out / "metrics/tensorboard").glob("events.*"))
    assert (out / "final/model.safetensors").exists()
    assert "policy and reference agree" in done.stderr
