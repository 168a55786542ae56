"""Weight decay and schedule as transformers' Trainer."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpo_trainer.optimizer import make_optimizer, make_scheduler, parameter_groups
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from tests.unit.trainer.specs import spec
from tests.unit.trainer.tiny_model import save_tiny_model


def test_the_same_parameters_decay_as_in_transformers(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(save_tiny_model(tmp_path / "model"))
    arguments = TrainingArguments(output_dir=str(tmp_path), weight_decay=0.1, use_cpu=True, report_to="none")
    trainer = Trainer(model=model, args=arguments)
    theirs = trainer.create_optimizer()
    ours = parameter_groups(model, 0.1)
    assert len(ours) == 2
    for mine, other in zip(ours, theirs.param_groups, strict=True):
        assert mine["weight_decay"] == other["weight_decay"]
        assert [id(p) for p in mine["params"]] == [id(p) for p in other["params"]]


@pytest.mark.parametrize(
    ("kind", "rates"),
    [
        ("linear", [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]),
        ("constant_with_warmup", [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
        ("constant", [1.0] * 6),
    ],
)
def test_learning_rates(tmp_path: Path, kind: str, rates: list[float]) -> None:
    model = AutoModelForCausalLM.from_pretrained(save_tiny_model(tmp_path / "model"))
    optimization = spec(
        optimization={"learningRate": 1.0, "lrSchedulerType": kind, "warmupSteps": 2, "adamBeta2": 0.95}
    ).optimization
    optimizer = make_optimizer(model, optimization)
    assert optimizer.defaults["betas"] == (0.9, 0.95)
    scheduler = make_scheduler(optimizer, optimization, total_steps=6)
    seen = []
    for _ in rates:
        seen.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert seen == pytest.approx(rates)
