"""TRL 1.16 as the oracle: its own loss on given log-probabilities, and whole steps of its trainer."""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

_SHUFFLE = "trl.trainer.grpo_trainer.shuffle_sequence_dict"


class _OneProcess:
    """The parts of accelerate's Accelerator that TRL's loss uses, for a single process that plays one of several."""

    sync_gradients = True

    def __init__(self, world_size: int) -> None:
        self.num_processes = world_size

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor


@dataclass(frozen=True)
class TrlLoss:
    """TRL's loss and what it logs."""

    loss: Tensor
    metrics: dict[str, float]


def trl_loss(
    logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    loss_type: str,
    beta: float = 0.0,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    delta: float | None = None,
    importance_sampling_level: str = "token",
    use_bias_correction_kl: bool = True,
    max_completion_length: int = 512,
    gradient_accumulation_steps: int = 1,
    steps_per_generation: int = 1,
    num_items_in_batch: float = 1.0,
    world_size: int = 1,
    old_logps: Tensor | None = None,
    ref_logps: Tensor | None = None,
    entropies: Tensor | None = None,
) -> TrlLoss:
    """`GRPOTrainer._compute_loss` as it is, on a stand-in for the trainer whose model gives these log-probabilities."""
    from trl import GRPOTrainer

    entropies = torch.zeros_like(logps) if entropies is None else entropies
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logps, entropies, None),
        accelerator=_OneProcess(world_size),
        args=SimpleNamespace(
            delta=delta,
            use_bias_correction_kl=use_bias_correction_kl,
            steps_per_generation=steps_per_generation,
        ),
        model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)},
        _entropy_bonus_enabled=False,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        beta=beta,
        loss_type=loss_type,
        epsilon_low=epsilon,
        epsilon_high=epsilon if epsilon_high is None else epsilon_high,
        importance_sampling_level=importance_sampling_level,
        max_completion_length=max_completion_length,
        current_gradient_accumulation_steps=gradient_accumulation_steps,
    )
    batch, length = logps.shape
    inputs = {
        "prompt_ids": torch.ones(batch, 1, dtype=torch.long),
        "prompt_mask": torch.ones(batch, 1, dtype=torch.long),
        "completion_ids": torch.ones(batch, length, dtype=torch.long),
        "completion_mask": mask.long(),
        "advantages": advantages,
        "num_items_in_batch": torch.as_tensor(num_items_in_batch),
        "old_per_token_logps": old_logps,
        "ref_per_token_logps": ref_logps,
    }
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    return TrlLoss(loss, {name: values[-1] for name, values in trainer._metrics["train"].items()})


def trl_advantages(
    rewards: Tensor, weights: Sequence[float], *, num_generations: int, scale_rewards: str
) -> tuple[Tensor, dict[str, float]]:
    """Advantages and reward metrics as a real `GRPOTrainer` computes them from given rewards per function.

    `_generate_and_score_completions` runs as it is on a stand-in for the trainer: generation, log-probabilities and
    the reward functions are replaced by the given values.
    """
    from trl import GRPOTrainer

    rows, functions = rewards.shape
    names = [f"f{i}" for i in range(functions)]
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device="cpu", process_index=0, num_processes=1, gather=lambda tensor: tensor),
        model=SimpleNamespace(training=True, is_gradient_checkpointing=False),
        args=SimpleNamespace(
            per_device_train_batch_size=rows,
            steps_per_generation=1,
            gradient_accumulation_steps=1,
            gradient_checkpointing_kwargs=None,
        ),
        environment_factories=None,
        environments=None,
        tools=None,
        pad_to_multiple_of=None,
        mask_truncated_completions=False,
        num_generations=num_generations,
        num_iterations=1,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        beta=0.0,
        multi_objective_aggregation="sum_then_normalize",
        scale_rewards=scale_rewards,
        reward_weights=torch.tensor(list(weights), dtype=torch.float32),
        reward_funcs=names,
        reward_func_names=names,
        _tokenizer=SimpleNamespace(pad_token_id=0),
        _generate=lambda prompts: (
            [[1]] * rows,
            [[1, 2]] * rows,
            None,
            ["x"] * rows,
            None,
            {},
            None,
            [],
        ),
        _calculate_rewards=lambda *_: rewards,
        _metrics={"train": defaultdict(list)},
        _logs=defaultdict(list, rewards=defaultdict(list), extra=defaultdict(list)),
        _pending_extra_logs={},
        _pending_metrics={},
        log_multimodal=False,
    )
    output = GRPOTrainer._generate_and_score_completions(trainer, [{"prompt": "x"} for _ in range(rows)])
    return output["advantages"], {name: values[-1] for name, values in trainer._metrics["train"].items()}


@dataclass
class TrlRun:
    """What a whole run of TRL's trainer did, step by step."""

    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    """All that TRL logged at each step."""
    prompts: list[list[str]] = field(default_factory=list)
    """The prompts of each generation batch, in TRL's order."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """The model's parameters at the end, by name."""


def run_trl(
    model_dir: Path,
    prompts: Sequence[str],
    completions: dict[str, Sequence[Sequence[int]]],
    rewards: dict[str, Sequence[float]],
    *,
    steps: int = 3,
    shuffle_rows: bool = False,
    **settings: Any,
) -> TrlRun:
    """Train with TRL's `GRPOTrainer` on the CPU in fp32 with the given completions instead of sampled ones.

    Args:
        model_dir: a transformers folder with model and tokenizer; the reference is the same model, frozen.
        prompts: the dataset, text prompts.
        completions: by prompt, `num_generations` lists of token ids.
        rewards: by prompt, the reward of each of those.
        steps: optimizer steps.
        shuffle_rows: whether TRL shuffles the rows of a generation batch before it cuts them into micro-batches, as
            it does by itself; off, micro-batches are the rows in order.
        settings: fields of GRPOConfig, over the ones below (fp32, no warm-up, one generation per optimizer step,
            per_device_train_batch_size 4, num_generations 2, no shuffling of the dataset).
    """
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    run = TrlRun()

    class Injected(GRPOTrainer):
        """Generates nothing: every prompt's completions are known."""

        def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
            texts = [tokenizer.decode(ids) for ids in prompt_ids]
            run.prompts.append(texts)
            seen: dict[str, int] = defaultdict(int)
            out = []
            for text in texts:
                out.append(list(completions[text][seen[text] % len(completions[text])]))
                seen[text] += 1
            return out, None

    class Log(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
            if "grad_norm" in logs:
                run.losses.append(float(logs["loss"]))
                run.grad_norms.append(float(logs["grad_norm"]))
                run.learning_rates.append(float(logs["learning_rate"]))
                run.metrics.append(dict(logs))

    def reward(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        seen: dict[str, int] = defaultdict(int)
        out = []
        for prompt, ids in zip(prompts, completion_ids, strict=True):
            k = seen[prompt] % len(completions[prompt])
            assert list(completions[prompt][k]) == list(ids)
            out.append(float(rewards[prompt][k]))
            seen[prompt] += 1
        return out

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    defaults = {
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "gradient_accumulation_steps": 1,
        "num_iterations": 1,
        "shuffle_dataset": False,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "beta": 0.0,
        "gradient_checkpointing": False,
        "max_completion_length": 8,
        "pad_to_multiple_of": None,
        "seed": 0,
    }
    with tempfile.TemporaryDirectory() as output:
        config = GRPOConfig(
            output_dir=output,
            use_cpu=True,
            bf16=False,
            max_steps=steps,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **(defaults | settings),
        )
        trainer = Injected(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": list(prompts)}),
            processing_class=tokenizer,
            callbacks=[Log()],
        )
        keep_order = contextlib.nullcontext() if shuffle_rows else patch(_SHUFFLE, lambda rows: rows)
        with keep_order:
            trainer.train()
    run.weights = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    return run
