"""What must not change a result: the number of ranks, how weights are gathered, our loop instead of TRL's.

Jobs share rank processes, because imports take longer than the jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.trainer.jobs import Run, Workspace, merged, read_jsonl
from tests.integration.trainer.refserver import ReferenceServer
from tests.integration.trainer.variants import run_variants, variant
from tests.unit.trainer.trl_oracle import run_trl

pytestmark = pytest.mark.timeout(1800)

EOS = 2
LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo")


def given_completions(workspace: Workspace) -> dict[str, list[list[int]]]:
    """Four completions of unequal lengths for each prompt."""
    random = torch.Generator().manual_seed(1)
    completions = {}
    for row in read_jsonl(workspace.folder / "prompts.jsonl"):
        lengths = torch.randint(1, 8, (4,), generator=random).tolist()
        completions[row["prompt"]] = [
            [*torch.randint(3, 259, (length,), generator=random).tolist(), EOS] for length in lengths
        ]
    return completions


def trl_spec(workspace: Workspace, loss_type: str) -> dict[str, Any]:
    """One rank; two micro-batches a generation, two iterations, accumulation over two: off-policy from step 2 on."""
    return workspace.spec(
        dataset={"shuffle": False},
        optimization={
            "lossType": loss_type,
            "beta": 0.04,
            "numIterations": 2,
            "gradientAccumulationSteps": 2,
            "lrSchedulerType": "constant",
            "learningRate": 3e-4,
            "maxSteps": 3,
        },
        trainer={"replicas": 1},
    )


@pytest.fixture(scope="module")
def one_rank(
    workspace: Workspace, refserver: ReferenceServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    completions = given_completions(workspace)
    given = workspace.spec(
        optimization={"perDeviceTrainBatchSize": 8, "maxSteps": 5, "numIterations": 2, "beta": 0.04},
        trainer={"replicas": 1},
    )
    variants = [variant("given", given, completions=completions, url=refserver.url)]
    for loss_type in LOSSES:
        variants.append(variant(loss_type, trl_spec(workspace, loss_type), completions=completions, url=refserver.url))
    return run_variants(
        tmp_path_factory.mktemp("one") / "rank", workspace, 1, variants, GRPO_TOKEN_FILE=str(refserver.token)
    )


@pytest.fixture(scope="module")
def two_ranks(
    workspace: Workspace, refserver: ReferenceServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    given = workspace.spec(optimization={"maxSteps": 5, "numIterations": 2, "beta": 0.04})
    sampled = workspace.spec(
        optimization={"maxSteps": 6, "numIterations": 2},
        generation={"stepsPerGeneration": 2},
        trainer={"deepspeed": {"config": {"zero_optimization": {"stage3_param_persistence_threshold": 0}}}},
    )
    # Prompts of both kinds of end: with this many ids, some completions end early, and at different steps on each rank.
    variants = [
        variant("given", given, completions=given_completions(workspace), url=refserver.url),
        variant("gathered", sampled, gather="true"),
        variant("layered", sampled, gather="false"),
        variant("checkpointing", merged(sampled, {"optimization": {"gradientCheckpointing": True}}), gather="true"),
    ]
    for name, changes in {
        "stage-0": {"trainer": {"deepspeed": {"zeroStage": 0}}},
        "stage-2": {"trainer": {"deepspeed": {"zeroStage": 2}}},
        "bfloat16": {"model": {"dtype": "bfloat16"}},
    }.items():
        spec = merged(given, changes)
        variants.append(variant(name, spec, completions=given_completions(workspace), url=refserver.url))
    return run_variants(
        tmp_path_factory.mktemp("two") / "ranks", workspace, 2, variants, GRPO_TOKEN_FILE=str(refserver.token)
    )


def assert_same_training(one: Run, other: Run, tolerance: float = 1e-5) -> None:
    losses = [[row["loss"] for row in run.metrics] for run in (one, other)]
    norms = [[row["grad_norm"] for row in run.metrics] for run in (one, other)]
    assert min(norms[0]) > 1e-2
    assert losses[0] == pytest.approx(losses[1], abs=tolerance)
    assert norms[0] == pytest.approx(norms[1], rel=tolerance, abs=tolerance)
    assert difference(one.weights(), other.weights()) <= tolerance


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def start_weights(workspace: Workspace) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(workspace.model / "model.safetensors")


def test_two_ranks_equal_one(one_rank: dict[str, Run], two_ranks: dict[str, Run], workspace: Workspace) -> None:
    one, two = one_rank["given"], two_ranks["given"]
    assert_same_training(one, two)
    assert len(one.metrics) == 5
    assert difference(two.weights(), start_weights(workspace)) > 1e-3
    kls = [row["kl"] for row in two.metrics]
    assert kls[0] == pytest.approx(0, abs=1e-6), "the policy is the reference before the first step"
    assert min(kls[1:]) > 1e-4


@pytest.mark.parametrize("stage", [0, 2])
def test_lower_stages_equal_stage_3(two_ranks: dict[str, Run], stage: int) -> None:
    assert_same_training(two_ranks["given"], two_ranks[f"stage-{stage}"])


def test_bfloat16_trains_alike_within_its_precision(two_ranks: dict[str, Run]) -> None:
    whole, half = two_ranks["given"].metrics, two_ranks["bfloat16"].metrics
    assert [row["grad_norm"] for row in half] == pytest.approx([row["grad_norm"] for row in whole], rel=0.1)
    assert all(weight.dtype == torch.bfloat16 for weight in two_ranks["bfloat16"].weights().values())


def test_gathered_equals_layer_by_layer(two_ranks: dict[str, Run], workspace: Workspace) -> None:
    gathered, layered = two_ranks["gathered"], two_ranks["layered"]
    rows = gathered.completions
    assert [row["completion_ids"] for row in rows] == [row["completion_ids"] for row in layered.completions]
    assert {row["rank"] for row in rows} == {0, 1}
    assert len({tuple(row["completion_ids"]) for row in rows}) > len(rows) // 2, "ranks and batches draw apart"
    assert max(abs(row["advantage"]) for row in rows) > 0.5
    assert_same_training(gathered, layered)
    assert difference(gathered.weights(), start_weights(workspace)) > 1e-3


def test_gradient_checkpointing_changes_nothing(two_ranks: dict[str, Run]) -> None:
    assert_same_training(two_ranks["gathered"], two_ranks["checkpointing"])


@pytest.mark.parametrize("loss_type", LOSSES)
def test_whole_steps_equal_trl(
    one_rank: dict[str, Run], workspace: Workspace, loss_type: str, reward_of: Callable[[list[int]], float]
) -> None:
    completions = given_completions(workspace)
    prompts = [row["prompt"] for row in read_jsonl(workspace.folder / "prompts.jsonl")]
    theirs = run_trl(
        workspace.model,
        prompts,
        completions,
        {prompt: [reward_of(ids) for ids in rows] for prompt, rows in completions.items()},
        steps=3,
        loss_type=loss_type,
        beta=0.04,
        num_generations=4,
        num_iterations=2,
        gradient_accumulation_steps=2,
        learning_rate=3e-4,
    )
    ours = one_rank[loss_type]
    assert [row["loss"] for row in ours.metrics] == pytest.approx(theirs.losses, abs=1e-5)
    assert [row["grad_norm"] for row in ours.metrics] == pytest.approx(theirs.grad_norms, rel=1e-4)
    assert [row["learning_rate"] for row in ours.metrics] == pytest.approx(theirs.learning_rates)
    weights = ours.weights()
    assert difference({name: weights[name] for name in theirs.weights}, theirs.weights) <= 1e-5
    assert difference(weights, start_weights(workspace)) > 5e-4


def test_a_checkpoint_can_be_read_by_transformers(two_ranks: dict[str, Run], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    final = two_ranks["gathered"].folder / "final"
    model = AutoModelForCausalLM.from_pretrained(final)
    tokenizer = AutoTokenizer.from_pretrained(final)
    prompt = tokenizer("a0>", return_tensors="pt")
    assert model.generate(**prompt, max_new_tokens=2, do_sample=False).shape[1] > prompt["input_ids"].shape[1]
