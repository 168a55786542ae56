"""A rank's part of the weights: read from a version's folder into host memory, and put where the old ones are.

Reading needs no other rank: from each tensor of the files (which are mapped, not read) this rank's part is copied.
So staging takes one copy of the weights in the host memory of all ranks together, and nothing on the devices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor

from grpo_refserver.engine import VersionError


@dataclass(frozen=True, eq=False)
class Weight:
    """A weight of the model that serves.

    Attributes:
        names: its name, and those of weights that are tied to it.
        shape: of the whole.
        local: the part of this rank, as it serves.
        placements: how it is cut; None where every rank has all of it.
    """

    names: tuple[str, ...]
    shape: torch.Size
    local: Tensor
    placements: Sequence[Any] | None

    def cut(self, whole: Tensor, mesh: DeviceMesh) -> Tensor:
        """This rank's part, as a copy: a mapped file may change or go. ``mesh``: of the ranks, on the CPU."""
        if self.placements is not None:
            # No rank sends anything: src_data_rank None says that each has the whole.
            placed: Any = distribute_tensor(whole, mesh, self.placements, src_data_rank=None)
            whole = placed.to_local()
        return whole.to(self.local.dtype, copy=True).contiguous()


def weights_of(model: Any) -> list[Weight]:
    """Every parameter and persistent buffer; ones that are tied come once.

    Call it while no forward runs: transformers takes weights out of their modules meanwhile.
    """
    seen: dict[int, tuple[Any, list[str]]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        seen.setdefault(id(tensor), (tensor, []))[1].append(name)
    return [
        Weight(
            tuple(names),
            tensor.shape,
            (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach(),
            tensor.placements if isinstance(tensor, DTensor) else None,
        )
        for tensor, names in seen.values()
    ]


def read_shards(folder: Path, weights: Sequence[Weight], mesh: DeviceMesh) -> list[Tensor]:
    """This rank's parts, in the order of ``weights``, in host memory. ``mesh``: of the ranks, on the CPU.

    Raises:
        VersionError: the files do not hold exactly the weights of the model, or hold one that is not finite.
        SafetensorError, OSError: they cannot be read.
    """
    with ExitStack() as stack:
        files = {
            name: opened
            for path in _files(folder)
            for opened in [stack.enter_context(safe_open(path, "pt"))]
            for name in opened.keys()  # noqa: SIM118  (no mapping)
        }
        known = {name for weight in weights for name in weight.names}
        if unknown := sorted(files.keys() - known):
            raise VersionError(
                f"{folder} has {_some(unknown)}, which the model that serves has not: save the whole model with "
                "save_pretrained, and no other architecture (one whose experts are fused when it is loaded cannot be "
                "replaced while it is spread over several devices)"
            )
        return [_part(folder, weight, files, mesh) for weight in weights]


def size_of(weights: Sequence[Weight]) -> tuple[int, int]:
    """(bytes of this rank's parts, bytes of the whole model)."""
    return (
        sum(weight.local.numel() * weight.local.element_size() for weight in weights),
        sum(weight.shape.numel() * weight.local.element_size() for weight in weights),
    )


def _part(folder: Path, weight: Weight, files: dict[str, Any], mesh: DeviceMesh) -> Tensor:
    name = next((name for name in weight.names if name in files), None)
    if name is None:
        raise VersionError(f"{folder} lacks {weight.names[0]}: save the whole model with save_pretrained")
    whole = files[name].get_tensor(name)
    if whole.shape != weight.shape:
        raise VersionError(
            f"{folder} is another architecture: {name} has shape {list(whole.shape)}, and {list(weight.shape)} in the "
            "model that serves"
        )
    part = weight.cut(whole, mesh)
    if part.is_floating_point() and not bool(torch.isfinite(part).all()):
        raise VersionError(f"{folder} holds NaN or infinity in {name}: the training run has diverged")
    return part


def _files(folder: Path) -> Iterator[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        yield folder / "model.safetensors"
        return
    for name in sorted(set(json.loads(index.read_bytes())["weight_map"].values())):
        yield folder / Path(name).name


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
