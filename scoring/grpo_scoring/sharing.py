"""When it pays to compute a prompt once for its completions: a cost model, in floating-point operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grpo_scoring.group_sizes import GroupSizes

_OVERHEAD = {"cpu": 5e6, "cuda": 5e9}
"""What the extra attention calls of one span cost per layer, in operations the device could have done meanwhile:
about 0.1 ms at 50 GFLOPS, and 50 µs of launches at 100 TFLOPS."""


@dataclass(frozen=True)
class SharingCost:
    """Costs of one layer.

    Attributes:
        token: operations of everything but attention, for one token: two per weight.
        pair: operations of attention for one query with one key: ``4 * H * D``.
        overhead: operations that could be done in the time of a span's extra calls.
        merged: whether attention can run merged (`attention_kernels.merged`); masked, it also computes what the
            mask then hides.
    """

    token: float
    pair: float
    overhead: float
    merged: bool

    @classmethod
    def of(cls, model: Any, device_type: str, *, merged: bool) -> SharingCost:
        """Reads the sizes off a transformers model."""
        config = model.config.get_text_config()
        layers = max(1, config.num_hidden_layers)
        embeddings = model.get_input_embeddings().weight.numel()
        head = model.get_output_embeddings().weight
        tied = head.data_ptr() == model.get_input_embeddings().weight.data_ptr()
        body = sum(p.numel() for p in model.parameters()) - embeddings - (0 if tied else head.numel())
        heads = config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        return cls(2 * body / layers, 4 * heads * size, _OVERHEAD.get(device_type, _OVERHEAD["cuda"]), merged)

    def shares(self, sizes: GroupSizes) -> bool:
        """Whether computing the prompt once beats computing it with each of the completions."""
        if sizes.count <= 1:
            return True  # the same row either way
        return self.shared(sizes) < self.rows(sizes)

    def shared(self, sizes: GroupSizes) -> float:
        """Operations of a layer with the prompt computed once."""
        own = sizes.total - sizes.count
        pairs = sizes.prompt**2 / 2 + self._branch_pairs(sizes)
        return self.token * (sizes.prompt + own) + self.pair * pairs + self.overhead

    def rows(self, sizes: GroupSizes) -> float:
        """Operations of a layer with the prompt computed for every completion."""
        tokens = sizes.count * (sizes.prompt - 1) + sizes.total
        longest = sizes.prompt + sizes.longest - 1
        return self.token * tokens + self.pair * sizes.count * longest**2 / 2

    def _branch_pairs(self, sizes: GroupSizes) -> float:
        longest = sizes.longest - 1
        if self.merged:
            return sizes.prompt * (sizes.total - sizes.count) + sizes.count * longest**2 / 2
        return sizes.count * longest * (sizes.prompt + longest)
