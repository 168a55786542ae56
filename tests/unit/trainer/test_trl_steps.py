"""Whole optimizer steps: our pure functions in a plain torch loop against TRL's trainer, with the same completions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from grpo_trainer.advantages import compute_advantages
from grpo_trainer.losses import LossSettings, Normalization, grpo_loss
from grpo_trainer.prompts import left_pad, right_pad
from grpo_trainer.sampler import DataPosition, PromptSampler, rank_rows
from torch import Tensor

from tests.unit.trainer.tiny_model import save_tiny_model
from tests.unit.trainer.trl_oracle import TrlRun, run_trl

EOS, GROUP, ROWS, STEPS, LEARNING_RATE = 2, 2, 4, 3, 3e-4
PROMPTS = ["ab", "cde", "f", "gh", "ijklm", "no"]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def completions_and_rewards() -> tuple[dict[str, list[list[int]]], dict[str, list[float]]]:
    random = torch.Generator().manual_seed(0)
    completions, rewards = {}, {}
    for prompt in PROMPTS:
        lengths = torch.randint(1, 7, (GROUP,), generator=random).tolist()
        completions[prompt] = [
            [*torch.randint(3, 259, (length,), generator=random).tolist(), EOS] for length in lengths
        ]
        rewards[prompt] = torch.rand(GROUP, generator=random).tolist()
    return completions, rewards


def run_ours(model_dir: Path, options: dict[str, Any]) -> TrlRun:
    """The loop of TRL's trainer in one process, written out with our functions."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    accumulation = options.get("gradient_accumulation_steps", 1)
    iterations = options.get("num_iterations", 1)
    steps_per_generation = options.get("steps_per_generation", accumulation)
    settings = LossSettings(
        loss_type=options["loss_type"],
        beta=options["beta"],
        importance_sampling_level=options.get("importance_sampling_level", "token"),
        max_completion_length=8,
    )
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).train()
    reference = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    completions, rewards = completions_and_rewards()
    sampler = PromptSampler(
        len(PROMPTS), ROWS * steps_per_generation // GROUP, seed=0, shuffle=options.get("shuffle_dataset", False)
    )
    position, run, micro_batch, window_loss = DataPosition(), TrlRun(), 0, 0.0
    while len(run.losses) < STEPS:
        indices, position = sampler.batch(position)
        rows = [PROMPTS[i] for i in rank_rows(indices, GROUP, 0, 1)]
        run.prompts.append(rows)
        ids, mask = left_pad([tokenizer(text)["input_ids"] for text in rows], 0)
        answers = [completions[text][i % GROUP] for i, text in enumerate(rows)]
        answer_ids, answer_mask = right_pad(answers, 0)
        scores = torch.tensor([[rewards[text][i % GROUP]] for i, text in enumerate(rows)])
        advantages = compute_advantages(scores, [1.0], num_generations=GROUP).advantages
        batch = (torch.cat([ids, answer_ids], 1), torch.cat([mask, answer_mask], 1), answer_ids.size(1))
        with torch.no_grad():
            ref_logps = log_probs(reference, *batch)
            old_logps = log_probs(model, *batch)
        for i in range(steps_per_generation * iterations):
            part = torch.arange(len(rows)).chunk(steps_per_generation)[i % steps_per_generation]
            out = grpo_loss(
                log_probs(model, batch[0][part], batch[1][part], batch[2]),
                advantages[part],
                answer_mask[part],
                settings=settings,
                normalization=Normalization(accumulation, steps_per_generation, answer_mask.sum()),
                old_logps=old_logps[part],
                ref_logps=ref_logps[part],
            )
            out.loss.backward()
            window_loss += out.loss.item()
            micro_batch += 1
            if micro_batch % accumulation == 0 and len(run.losses) < STEPS:
                run.grad_norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
                optimizer.step()
                optimizer.zero_grad()
                run.losses.append(window_loss)
                window_loss = 0.0
    run.weights = {name: value.detach() for name, value in model.named_parameters()}
    return run


def log_probs(model: Any, ids: Tensor, mask: Tensor, length: int) -> Tensor:
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -length - 1 : -1]
    return logits.float().log_softmax(-1).gather(-1, ids[:, -length:, None]).squeeze(-1)


@pytest.mark.parametrize(
    "options",
    [
        {"loss_type": "dapo", "beta": 0.0},
        {"loss_type": "dapo", "beta": 0.04, "gradient_accumulation_steps": 2, "steps_per_generation": 3}
        | {"num_iterations": 2},
        {"loss_type": "grpo", "beta": 0.04, "num_iterations": 2},
        {"loss_type": "bnpo", "beta": 0.04, "num_iterations": 3, "importance_sampling_level": "sequence"},
        {"loss_type": "dr_grpo", "beta": 0.0, "gradient_accumulation_steps": 3, "shuffle_dataset": True},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_three_steps_equal_trl(model_dir: Path, options: dict[str, Any]) -> None:
    completions, rewards = completions_and_rewards()
    theirs = run_trl(model_dir, PROMPTS, completions, rewards, steps=STEPS, learning_rate=LEARNING_RATE, **options)
    ours = run_ours(model_dir, options)
    assert ours.prompts == theirs.prompts[: len(ours.prompts)]
    assert len(theirs.losses) == STEPS
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-5, abs=1e-6)
    assert ours.grad_norms == pytest.approx(theirs.grad_norms, rel=1e-4, abs=1e-5)
    assert min(theirs.grad_norms) > 0.1
    for name, weight in theirs.weights.items():
        torch.testing.assert_close(ours.weights[name], weight, rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
