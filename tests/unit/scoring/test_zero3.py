"""Two real DeepSpeed ranks over gloo: the head under ZeRO-3's hooks."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server_process import free_port

RANK = Path(__file__).with_name("zero3_rank.py")


def two_ranks(output: Path, *folders: Path) -> list[dict]:
    environment = os.environ | {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "LOCAL_RANK": "0",
        "DS_ACCELERATOR": "cpu",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANK), str(output), *map(str, folders)],
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        logs = [rank.communicate(timeout=150)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, log in zip(ranks, logs, strict=True):
        assert rank.returncode == 0, log[-3000:]
    return json.loads(output.read_text())


def test_two_ranks_with_unequal_chunk_counts_equal_one_process_with_full_logits(make_model, tmp_path):
    pytest.importorskip("deepspeed")
    folders = [tmp_path / "untied", tmp_path / "tied"]
    for family, folder in zip(["llama", "qwen2-tied"], folders, strict=True):
        make_model(family).save_pretrained(folder)
    alone = runpy.run_path(str(RANK))["alone"]
    for folder, got in zip(folders, two_ranks(tmp_path / "ranks.json", *folders), strict=True):
        expected = alone(str(folder))
        assert got["held"] <= 0.55, folder.name
        assert got["losses"] == pytest.approx(expected["losses"], abs=1e-6), folder.name
        assert got["norms"] == pytest.approx(expected["norms"], rel=1e-5), folder.name
        assert len(set(expected["losses"])) == 4
        assert all(len(row) == 3 for step in got["tokens"] for row in step)
