"""Runs several small jobs in one set of rank processes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

from grpo_trainer.ranks import Ranks
from grpo_trainer.supervisor import Supervisor

from tests.integration.trainer.jobs import Run, Spec, Workspace, clean_environment
from tests.server_process import free_port

ROOT = Path(__file__).parents[3]


def variant(
    name: str, spec: Spec, *, completions: dict[str, list[list[int]]] | None = None, url: str = "", gather: str = ""
) -> dict[str, Any]:
    return {"name": name, "spec": spec, "completions": completions, "url": url, "gather": gather}


def run_variants(
    folder: Path, workspace: Workspace, world_size: int, variants: list[dict[str, Any]], **variables: str
) -> dict[str, Run]:
    """Train the variants; return what each left behind."""
    folder.mkdir(parents=True)
    listed = folder / "variants.json"
    listed.write_text(json.dumps([one | {"output": str(folder / one["name"])} for one in variants]))
    port = free_port()
    environment = clean_environment(workspace) | variables
    environment["PYTHONPATH"] += f":{ROOT}"
    printed = io.StringIO()
    supervisor = Supervisor(None, printed)
    supervisor.start(
        [sys.executable, "-m", "tests.integration.trainer.variants_rank", str(listed)],
        {
            rank: environment
            | Ranks(rank, world_size, rank, world_size, "127.0.0.1", port).to_environ()
            | {"PYTHONUNBUFFERED": "1"}
            for rank in range(world_size)
        },
    )
    ends = supervisor.wait(grace_seconds=60)
    assert all(end.code == 0 for end in ends), printed.getvalue()[-8000:]
    return {one["name"]: Run(0, printed.getvalue(), folder / one["name"], None) for one in variants}
