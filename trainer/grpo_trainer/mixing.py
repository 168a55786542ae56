"""Weights of two transformers folders mixed, file by file: memory holds one file's tensors, never two models.

`mixed = alpha * policy + (1 - alpha) * previous` in fp32, as TRL 1.16 computes it in the reference's dtype
(`trl/trainer/callbacks.py`, SyncRefModelCallback). The result stays in fp32: in half precision a small alpha's change
would be lost in rounding, time after time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from grpo_trainer.errors import ConfigurationError

WEIGHTS = "*.safetensors"
INDEX = "model.safetensors.index.json"


def mix_folder(folder: Path, previous: Path, alpha: float) -> None:
    """Replace the weights in `folder`, the policy's, by their mixture with those in `previous`.

    Both must be written by `save_pretrained` of one model: the same names of tensors, in whatever files.

    Raises:
        ConfigurationError: a tensor is not in `previous`, or has another shape there.
    """
    files = {name: path for path in sorted(previous.glob(WEIGHTS)) for name in _names(path)}
    total = 0
    for path in sorted(folder.glob(WEIGHTS)):
        mixed = {name: _mixed(name, tensor, files, previous, alpha) for name, tensor in _tensors(path)}
        total += sum(tensor.nbytes for tensor in mixed.values())
        new = path.with_name(f"{path.name}.mixed")
        save_file(mixed, new, metadata={"format": "pt"})
        new.replace(path)
    index = folder / INDEX
    if index.exists():
        content = json.loads(index.read_text())
        content.setdefault("metadata", {})["total_size"] = total
        index.write_text(json.dumps(content, indent=2) + "\n")


def _mixed(name: str, policy: Tensor, files: dict[str, Path], previous: Path, alpha: float) -> Tensor:
    if not policy.is_floating_point():
        return policy
    if name not in files:
        raise ConfigurationError("reference.revision", f"{previous} has no tensor {name}, which the policy has")
    with safe_open(files[name], framework="pt") as opened:
        before: Tensor = opened.get_tensor(name)
    if before.shape != policy.shape:
        raise ConfigurationError(
            "reference.revision",
            f"{name} has the shape {tuple(before.shape)} in {previous} and {tuple(policy.shape)} in the policy: both "
            "must be the same model",
        )
    return before.to(torch.float32, copy=True).mul_(1.0 - alpha).add_(policy.float(), alpha=alpha)


def _names(path: Path) -> list[str]:
    with safe_open(path, framework="pt") as opened:
        return list(opened.keys())


def _tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    with safe_open(path, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118  (not a dict)
            yield name, opened.get_tensor(name)
