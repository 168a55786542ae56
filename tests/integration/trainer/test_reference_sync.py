"""Iterative GRPO: the policy becomes the reference, on real servers, and a kill makes no difference."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grpo_scoring.groups import Group
from grpo_scoring.logprobs import completion_logprobs
from grpo_trainer.reference import ReferenceClient, ReferenceVersion
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.integration.trainer.jobs import (
    Run,
    Workspace,
    assert_same_run,
    ended_well,
    kill_rank,
    merged,
    read_jsonl,
    start,
)
from tests.integration.trainer.refserver import START_SECONDS, ReferenceServer, reference_server
from tests.integration.trainer.service import Answer, service
from tests.integration.trainer.test_same_results import difference, given_completions, trl_spec
from tests.integration.trainer.variants import run_variants, variant
from tests.unit.trainer.trl_oracle import run_trl

pytestmark = pytest.mark.timeout(2400)

TOKEN = "a-test-token"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The volume that trainer and reference share: below it lie the runs."""
    return tmp_path_factory.mktemp("volume")


def server_of(
    workspace: Workspace, root: Path, name: str, port: int | None = None
) -> AbstractContextManager[ReferenceServer]:
    token = workspace.folder / "token"
    token.write_text(f"{TOKEN}\n")
    flags = ["--dtype", "float32", "--deterministic", "--versions-root", str(root)]
    return reference_server(workspace.model, root / name, *flags, token=token, port=port)


@pytest.fixture(scope="module")
def synced(workspace: Workspace, root: Path) -> Iterator[ReferenceServer]:
    with server_of(workspace, root, "reference") as server:
        yield server


def synced_spec(workspace: Workspace, every: int, alpha: float = 1.0, **groups: dict[str, Any]) -> dict[str, Any]:
    """Two steps for each generation batch, the second off-policy."""
    spec = workspace.spec(
        optimization={"beta": 0.04, "numIterations": 2, "lrSchedulerType": "constant"},
        reference={"deterministic": True, "sync": {"everySteps": every, "mixupAlpha": alpha}},
    )
    return merged(spec, groups)


def versions(run: Path) -> set[str]:
    return {path.name for path in (run / "versions").iterdir() if path.is_dir()}


@pytest.fixture(scope="module")
def two_ranks(workspace: Workspace, synced: ReferenceServer, root: Path) -> dict[str, Run]:
    replaced = synced_spec(workspace, 3, optimization={"maxSteps": 10}, checkpoint={"everySteps": 100})
    # Ends with the weights of step 6, when the other run replaces its reference for the last time.
    until_6 = synced_spec(workspace, 3, optimization={"maxSteps": 6}, checkpoint={"everySteps": 100})
    variants = [variant("replaced", replaced, url=synced.url), variant("until-6", until_6, url=synced.url)]
    return run_variants(root / "two", workspace, 2, variants, GRPO_TOKEN_FILE=str(synced.token))


def test_after_a_replacement_the_reference_is_the_policy(two_ranks: dict[str, Run]) -> None:
    """Every 3 steps, at boundaries of two steps: after 4 (for 3) and 6; that of 10 (for 9) is the end."""
    rows = two_ranks["replaced"].metrics
    kls = {row["step"]: row["kl"] for row in rows}
    of_step = {row["step"]: row["reference/step"] for row in rows}
    assert of_step == {1: 0, 2: 0, 3: 0, 4: 0, 5: 4, 6: 4, 7: 6, 8: 6, 9: 6, 10: 6}
    for first in (1, 5, 7):
        assert abs(kls[first]) < 1e-7, "the policy is the reference"
        assert kls[first + 1] > 1e-6, "and no longer after a step"
    assert min(kls[3], kls[9]) > 1e-5, "no replacement at these boundaries"


def test_the_server_scores_as_the_policy_of_that_step(two_ranks: dict[str, Run], synced: ReferenceServer) -> None:
    folder = two_ranks["replaced"].folder
    assert versions(folder) == {"step-6"}, "those of steps that nobody needs are gone"
    policy = two_ranks["until-6"].folder / "final"
    ours, theirs = (load_file(path / "model.safetensors") for path in (folder / "versions/step-6", policy))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    random = torch.Generator().manual_seed(2)
    prompt = torch.randint(3, 259, (9,), generator=random).tolist()
    completions = [torch.randint(3, 259, (length,), generator=random).tolist() for length in (1, 7, 20)]
    asking = ReferenceClient(synced.url, token=TOKEN, temperature=1.0, timeout_seconds=120, use_proxies=False)
    try:
        wanted = [ReferenceVersion("step-6", str(folder / "versions/step-6")), ReferenceVersion("base")]
        after, before = (asking.submit([prompt] * 3, completions, version).result() for version in wanted)
    finally:
        asking.close()
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()
    local = completion_logprobs(model, [Group.of(prompt, completions)]).completions()
    for row, expected, first in zip(after, local, before, strict=True):
        np.testing.assert_allclose(row, expected, rtol=0, atol=2e-6)
        assert np.abs(row - first).max() > 1e-4


def test_a_mixture_equals_trl(
    workspace: Workspace, synced: ReferenceServer, root: Path, reward_of: Callable[[list[int]], float]
) -> None:
    completions = given_completions(workspace)
    spec = merged(
        trl_spec(workspace, "grpo"),
        {
            "optimization": {"maxSteps": 6, "beta": 1.0},
            "reference": {"deterministic": True, "sync": {"everySteps": 2, "mixupAlpha": 0.6}},
        },
    )
    ours = run_variants(
        root / "mixed", workspace, 1, [variant("run", spec, completions=completions, url=synced.url)],
        GRPO_TOKEN_FILE=str(synced.token),
    )["run"]  # fmt: skip
    theirs = run_trl(
        workspace.model,
        [row["prompt"] for row in read_jsonl(workspace.folder / "prompts.jsonl")],
        completions,
        {prompt: [reward_of(ids) for ids in rows] for prompt, rows in completions.items()},
        steps=6,
        loss_type="grpo",
        beta=1.0,
        num_generations=4,
        num_iterations=2,
        gradient_accumulation_steps=2,
        learning_rate=3e-4,
        sync_ref_model=True,
        ref_model_sync_steps=2,
        ref_model_mixup_alpha=0.6,
    )
    assert [row["reference/step"] for row in ours.metrics] == [0, 0, 2, 2, 4, 4]
    assert [row["loss"] for row in ours.metrics] == pytest.approx(theirs.losses, abs=1e-5)
    assert [row["grad_norm"] for row in ours.metrics] == pytest.approx(theirs.grad_norms, rel=1e-4)
    kls = [row["kl"] for row in ours.metrics]
    assert min(kls[2], kls[4]) > 1e-6, "a mixture is not the policy"
    # Ours is the mean over tokens, TRL's the mean of its micro-batches' means.
    assert kls == pytest.approx([row["kl"] for row in theirs.metrics], rel=0.1, abs=1e-7)
    weights = ours.weights()
    assert difference({name: weights[name] for name in theirs.weights}, theirs.weights) <= 1e-5


STEPS = 12


def test_killed_and_resumed_equals_untouched(workspace: Workspace, synced: ReferenceServer, root: Path) -> None:
    """Killed while it replaces the reference after step 8; the checkpoint of step 6 still asks for that of step 4."""
    spec = synced_spec(
        workspace, 4, 0.5,
        optimization={"maxSteps": STEPS},
        dataset={"split": "train[:5]"},
        checkpoint={"everySteps": 3, "keep": 1},
    )  # fmt: skip
    folder = root / "killed"
    options: dict[str, Any] = {"url": synced.url, "token": synced.token, "gather": "true"}
    killed = start(spec, folder, workspace, attempt=0, **options)
    try:
        killed.wait_for("the version of step 8", lambda _: any((folder / "versions").glob("step-8*")))
        kill_rank(killed, 0)
        assert killed.finish(120).code == 137
    finally:
        killed.kill()
    newest = max(int(path.parent.name.split("-")[1]) for path in (folder / "checkpoints").glob("step-*/manifest.json"))
    state = json.loads((folder / f"checkpoints/step-{newest}/manifest.json").read_text())["state"]
    assert (newest, state["reference"]) == (6, "step-4")
    assert "step-4" in versions(folder), "kept as long as a checkpoint asks for it"
    published = "step-8" in (folder / "versions/names").read_text().split()

    resumed = start(spec, folder, workspace, attempt=1, **options)
    try:
        run = ended_well(resumed.finish())
    finally:
        resumed.kill()
    assert f"resumed at step {newest}" in run.output
    last = "step-8.2" if published else "step-8"
    assert f"the reference is now {last}" in run.output
    assert versions(folder) == {last}

    whole = run_variants(
        root / "whole", workspace, 2, [variant("run", spec, url=synced.url, gather="true")],
        GRPO_TOKEN_FILE=str(synced.token),
    )["run"]  # fmt: skip
    assert_same_run(run, whole, STEPS)


def test_two_replicas_one_killed_serve_the_wanted_version(workspace: Workspace, root: Path) -> None:
    """A replica dies while step-5 is in force, comes back as one that knows only the base, and is asked for step-10.

    Each replica answers for each version, and no answer is of another version than its request's.
    """
    spec = workspace.spec(
        optimization={"beta": 0.04, "maxSteps": 20, "lrSchedulerType": "constant"},
        reference={"sync": {"everySteps": 5, "mixupAlpha": 1.0}},
        checkpoint={"everySteps": 100},
    )
    wanted = ["base", "step-5", "step-10", "step-15"]
    dead, back = threading.Event(), threading.Event()
    answered = Answer(1, "step-5", "step-5")
    with (
        server_of(workspace, root, "replica-0") as kept,
        server_of(workspace, root, "replica-1") as doomed,
        service(kept.url, doomed.url) as front,
        ExitStack() as stack,
    ):

        def gate(version: str | None) -> None:
            # The training is over in seconds: it waits here, so that it meets the dead replica, and then the new one.
            if version == "step-5" and answered in front.answers:
                assert dead.wait(60)
            if version == "step-10":
                assert back.wait(START_SECONDS)

        front.gate = gate
        running = start(spec, root / "replicas", workspace, url=front.url, token=kept.token)
        try:
            running.wait_for("step-5 from the replica", lambda _: answered in front.answers)
            doomed.process.kill()
            doomed.process.wait()
            dead.set()
            port = int(doomed.url.rpartition(":")[2])
            stack.enter_context(server_of(workspace, root, "replica-1-again", port))
            before = len(front.answers)
            back.set()
            run = ended_well(running.finish())
        finally:
            dead.set()
            back.set()
            running.kill()
    assert run.metrics[-1]["step"] == 20
    assert all(answer.used == answer.wanted for answer in front.answers)
    assert list(dict.fromkeys(answer.wanted for answer in front.answers)) == wanted, "one after the other, never back"
    for version in wanted:
        assert {answer.server for answer in front.answers if answer.wanted == version} == {0, 1}
    assert front.broken > 0, "a request met the dead replica"
    assert any(answer.server == 1 and answer.used == "step-10" for answer in front.answers[before:])
