"""What is told of the training: metrics files, the log, the progress board. Rank 0 writes; all ranks add up."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any

import torch
from grpo_api.layout import METRICS

from grpo_trainer.config import Settings
from grpo_trainer.distributed import Communicator
from grpo_trainer.loop import TrainState, Window
from grpo_trainer.metrics import (
    Averages,
    completion_metrics,
    loss_metrics,
    reward_metrics,
    time_metrics,
)
from grpo_trainer.progress import ProgressBoard
from grpo_trainer.prompts import is_truncated
from grpo_trainer.rollouts import Rollout
from grpo_trainer.versions import version_step
from grpo_trainer.writers import CompletionsWriter, MetricsWriter

logger = logging.getLogger(__name__)


class Report:
    """The loop's callbacks that tell what happens. All methods but `close` are collectives."""

    def __init__(
        self,
        settings: Settings,
        communicator: Communicator,
        board: ProgressBoard,
        *,
        reward_names: tuple[str, ...],
        eos_token_ids: list[int],
        batches_per_epoch: int,
        total_steps: int,
        resumed_at: int,
    ) -> None:
        self._spec = settings.spec
        self._communicator = communicator
        self._board = board
        self._reward_names = reward_names
        self._eos = eos_token_ids
        self._batches_per_epoch = batches_per_epoch
        self._total_steps = total_steps
        self._averages = Averages()
        self._step_ended = time.monotonic()
        self._completion_tokens = 0.0
        self._steps_here = 0
        self._started = time.monotonic()
        self._metrics: MetricsWriter | None = None
        self._completions: CompletionsWriter | None = None
        if communicator.is_main:
            folder = settings.output_dir / METRICS
            self._metrics = MetricsWriter(
                folder, tensorboard=self._spec.logging.report_to == "tensorboard", resumed_at=resumed_at
            )
            if self._spec.logging.completions:
                self._completions = CompletionsWriter(folder)
        board.update(step=resumed_at, total_steps=total_steps, phase="generating")

    def rollout(self, state: TrainState, rollout: Rollout) -> None:
        """Take in a generation batch before it is trained on."""
        lengths = [len(ids) for ids in rollout.completion_ids]
        truncated = [is_truncated(ids, self._eos) for ids in rollout.completion_ids]
        concatenate = self._communicator.concatenate
        self._averages.add(reward_metrics(rollout.advantages, self._reward_names))
        self._averages.add(completion_metrics(lengths, truncated, concatenate))
        self._averages.add(time_metrics(rollout.seconds, concatenate))
        self._completion_tokens = float(self._communicator.sum(torch.tensor(float(sum(lengths)))))
        self._board.update(reward=rollout.advantages.reward_mean, phase="training")
        if self._spec.logging.completions:
            ranks = self._communicator.gather(self._rows(rollout))
            if self._completions is not None:
                self._completions.write(state.step, [row for rows in ranks for row in rows])

    def step(self, state: TrainState, window: Window) -> None:
        """Take in an optimizer step."""
        now = time.monotonic()
        seconds, self._step_ended = now - self._step_ended, now
        loss = float(self._communicator.sum(torch.tensor(sum(window.losses), dtype=torch.float64)))
        loss /= self._communicator.world_size
        metrics = {
            "loss": loss,
            "grad_norm": window.grad_norm,
            "learning_rate": window.learning_rate,
            "num_tokens": float(state.tokens),
            "step_time": seconds,
            "tokens_per_second": self._completion_tokens / self._steps_per_batch / seconds,
            "epoch": state.step / (self._steps_per_batch * self._batches_per_epoch),
            **({"reference/step": float(version_step(state.reference))} if self._spec.reference.sync else {}),
        } | loss_metrics(window.statistics, self._communicator.concatenate)
        self._averages.add(metrics)
        self._steps_here += 1
        self._tell(state.step, metrics)
        if state.step % self._spec.logging.every_steps == 0 or state.step == self._total_steps:
            averages = self._averages.take()
            self._board.metrics(averages)
            if self._metrics is not None:
                self._metrics.write(state.step, averages)
                self._log(state.step, averages)

    def close(self) -> None:
        """Close the files."""
        for writer in (self._metrics, self._completions):
            if writer is not None:
                writer.close()

    @property
    def _steps_per_batch(self) -> int:
        """Optimizer steps that one generation batch gives."""
        optimization = self._spec.optimization
        micro_batches = self._spec.steps_per_generation * optimization.num_iterations
        return max(1, micro_batches // optimization.gradient_accumulation_steps)

    def _tell(self, step: int, metrics: dict[str, float]) -> None:
        pace = (time.monotonic() - self._started) / self._steps_here
        self._board.update(
            step=step,
            loss=metrics["loss"],
            kl=metrics.get("kl"),
            tokens_per_second=metrics["tokens_per_second"],
            last_step_time=datetime.now(UTC),
            eta_seconds=pace * (self._total_steps - step),
        )

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        shown = ("reward", "loss", "kl", "grad_norm", "learning_rate", "completions/mean_length", "step_time")
        text = " ".join(f"{name}={metrics[name]:.4g}" for name in shown if name in metrics)
        logger.info("step %d/%d %s", step, self._total_steps, text)

    def _rows(self, rollout: Rollout) -> list[dict[str, Any]]:
        """This rank's completions for completions.jsonl."""
        first = self._communicator.rank * len(rollout.completions)
        total = rollout.advantages.rewards[first:].tolist()
        return [
            {
                "rank": self._communicator.rank,
                "prompt": prompt.prompt,
                "completion": completion,
                "completion_ids": ids,
                "rewards": dict(zip(self._reward_names, rewards, strict=True)),
                "reward": total[row],
                "advantage": float(rollout.advantages.advantages[first + row]),
                **{name: values[row] for name, values in rollout.rewards.extra.items()},
            }
            for row, (prompt, completion, ids, rewards) in enumerate(
                zip(rollout.prompts, rollout.completions, rollout.completion_ids, rollout.rewards.rewards, strict=True)
            )
        ]
