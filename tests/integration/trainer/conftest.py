"""A workspace with a tiny random model, prompts and reward functions, made once for the session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.trainer.jobs import Workspace
from tests.integration.trainer.refserver import ReferenceServer, reference_server
from tests.unit.trainer.tiny_model import save_tiny_model

REWARDS = '''
import os, time


def letters(completion_ids, **kwargs):
    """Share of ids that stand for letters, spread by position so that hardly two completions are equal."""
    return [
        sum((i % 7) + 1.0 for i, token in enumerate(ids) if token % 3 == 0) / 10 + len(ids) / 100
        for ids in completion_ids
    ]


def broken_on_rank_1(completion_ids, **kwargs):
    if os.environ["RANK"] == "1":
        raise ValueError("no verdict on such a completion")
    return [1.0] * len(completion_ids)
'''


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder: Path = tmp_path_factory.mktemp("trainer")
    save_tiny_model(folder / "model")
    prompts = [{"prompt": "abcdefgh"[i % 8] * (1 + i % 5) + f"{i}>", "answer": str(i)} for i in range(40)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))
    (folder / "code").mkdir()
    (folder / "code/lettercount.py").write_text(REWARDS)
    return Workspace(folder)


@pytest.fixture(scope="session")
def reward_of() -> Callable[[list[int]], float]:
    """The workspace's reward of one completion, as the ranks compute it."""
    names: dict[str, Callable[..., list[float]]] = {}
    exec(REWARDS, names)
    return lambda ids: names["letters"]([ids])[0]


@pytest.fixture(scope="session")
def refserver(workspace: Workspace) -> Iterator[ReferenceServer]:
    """The tiny model behind a real reference server, with a token."""
    token = workspace.folder / "token"
    token.write_text("a-test-token\n")
    flags = ("--dtype", "float32", "--deterministic")
    with reference_server(workspace.model, workspace.folder / "reference", *flags, token=token) as server:
        yield server
