"""The trainer's client against a real reference server."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from grpo_scoring.groups import Group
from grpo_scoring.logprobs import completion_logprobs
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.reference import ReferenceClient
from grpo_trainer.reference.check import check_server
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.integration.trainer.jobs import Workspace
from tests.integration.trainer.refserver import ReferenceServer

pytestmark = pytest.mark.timeout(900)


def client(server: ReferenceServer, token: str | None = "a-test-token", temperature: float = 1.0) -> ReferenceClient:
    return ReferenceClient(server.url, token=token, temperature=temperature, timeout_seconds=120, use_proxies=False)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_remote_equals_in_process(workspace: Workspace, refserver: ReferenceServer, temperature: float) -> None:
    random = np.random.default_rng(0)
    prompts = [random.integers(3, 259, length).tolist() for length in (1, 5, 12) for _ in range(4)]
    prompts = [prompts[i - i % 4] for i in range(12)]
    completions = [random.integers(0, 259, length).tolist() for length in (1, 2, 30, 7, 8, 3, 1, 19, 4, 4, 0, 11)]
    asking = client(refserver, temperature=temperature)
    try:
        remote = asking.submit(prompts, completions).result()
    finally:
        asking.close()
    model = AutoModelForCausalLM.from_pretrained(workspace.model, dtype=torch.float32).eval()
    groups = [Group.of(prompt, [completion]) for prompt, completion in zip(prompts, completions, strict=True)]
    local = completion_logprobs(model, groups, temperature=temperature).completions()
    assert [len(row) for row in remote] == [len(row) for row in completions]
    assert min(row.min() for row in remote if len(row)) < -1
    for ours, theirs in zip(remote, local, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def test_what_the_server_tells_fits_the_model(workspace: Workspace, refserver: ReferenceServer) -> None:
    asking = client(refserver)
    try:
        info = asking.info()
        tokenizer = AutoTokenizer.from_pretrained(workspace.model)
        check_server(info, asking, vocabulary_size=272, tokenizer=tokenizer, dtype="float32", longest=64)
    finally:
        asking.close()
    assert info.model == str(workspace.model)
    assert info.vocabulary_size == 272


def test_a_wrong_token_is_permanent(refserver: ReferenceServer) -> None:
    asking = client(refserver, token="another")
    try:
        with pytest.raises(ConfigurationError, match=r"^GRPO_TOKEN_FILE: .*HTTP 401"):
            asking.info()
    finally:
        asking.close()


def test_an_id_beyond_the_vocabulary_is_permanent(refserver: ReferenceServer) -> None:
    asking = client(refserver)
    try:
        with pytest.raises(ConfigurationError, match="HTTP 422"):
            asking.submit([[1]], [[5, 272]]).result()
    finally:
        asking.close()
