"""The mixture of two models' files is exact, whatever files the tensors lie in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.mixing import INDEX, mix_folder
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.unit.trainer.tiny_model import save_tiny_model


def weights(folder: Path) -> dict[str, Tensor]:
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def save(folder: Path, seed: int, dtype: torch.dtype, size: str) -> dict[str, Tensor]:
    """A tiny model of its own weights, in files of at most `size`."""
    model = AutoModelForCausalLM.from_pretrained(save_tiny_model(folder, seed=seed), dtype=dtype)
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    model.save_pretrained(folder, max_shard_size=size)
    return weights(folder)


@pytest.mark.parametrize(("alpha", "dtype"), [(0.6, torch.float32), (0.01, torch.bfloat16)])
def test_the_mixture_is_exact_in_fp32(tmp_path: Path, alpha: float, dtype: torch.dtype) -> None:
    policy = save(tmp_path / "policy", 1, dtype, "100KB")
    previous = save(tmp_path / "previous", 2, torch.float32, "5GB")
    assert len(list((tmp_path / "policy").glob("*.safetensors"))) > 2
    mix_folder(tmp_path / "policy", tmp_path / "previous", alpha)
    mixed = weights(tmp_path / "policy")
    assert mixed.keys() == policy.keys()
    for name, tensor in mixed.items():
        assert tensor.dtype == torch.float32
        exact = alpha * policy[name].double() + (1 - alpha) * previous[name].double()
        torch.testing.assert_close(tensor.double(), exact, rtol=1e-6, atol=1e-8)
    assert any(not torch.equal(mixed[name], previous[name]) for name in mixed)
    assert weights(tmp_path / "previous").keys() == previous.keys(), "what is read stays as it is"
    assert all(torch.equal(tensor, previous[name]) for name, tensor in weights(tmp_path / "previous").items())
    index = json.loads((tmp_path / "policy" / INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in mixed.values())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "policy", dtype=torch.float32)
    assert torch.equal(model.lm_head.weight, mixed["lm_head.weight"])


def test_small_changes_add_up(tmp_path: Path) -> None:
    """In bfloat16 the change of every one of these mixtures would be lost in rounding."""
    previous = tmp_path / "previous"
    previous.mkdir()
    save_file({"w": torch.ones(1)}, previous / "model.safetensors")
    for time in range(100):
        folder = tmp_path / f"version-{time}"
        folder.mkdir()
        save_file({"w": torch.full((1,), 1.0078125, dtype=torch.bfloat16)}, folder / "model.safetensors")
        mix_folder(folder, previous, 0.01)
        previous = folder
    assert float(weights(previous)["w"]) == pytest.approx(1 + 0.0078125 * (1 - 0.99**100), rel=1e-6)


def test_integers_are_the_policys(tmp_path: Path) -> None:
    for name, value in (("policy", 3), ("previous", 5)):
        (tmp_path / name).mkdir()
        save_file({"steps": torch.tensor([value])}, tmp_path / name / "model.safetensors")
    mix_folder(tmp_path / "policy", tmp_path / "previous", 0.5)
    assert weights(tmp_path / "policy")["steps"].tolist() == [3]


@pytest.mark.parametrize(
    ("tensors", "told"),
    [({"other": torch.ones(2)}, "has no tensor w"), ({"w": torch.ones(3)}, r"has the shape \(3,\) in .* and \(2,\)")],
)
def test_another_model_is_refused(tmp_path: Path, tensors: dict[str, Tensor], told: str) -> None:
    for name, content in (("policy", {"w": torch.ones(2)}), ("previous", tensors)):
        (tmp_path / name).mkdir()
        save_file(content, tmp_path / name / "model.safetensors")
    with pytest.raises(ConfigurationError, match=f"^reference.revision: .*{told}"):
        mix_folder(tmp_path / "policy", tmp_path / "previous", 0.5)
