"""How each kind of reference server is spoken to: one file per engine (spec.reference.engine, REF_MODEL_ENGINE)."""

from grpo_trainer.reference.dialects.dialect import Ask, Dialect, DialectError, Scores
from grpo_trainer.reference.dialects.own import OwnDialect
from grpo_trainer.reference.dialects.sglang import SglangDialect
from grpo_trainer.reference.dialects.vllm import VllmDialect

__all__ = ["DIALECTS", "Ask", "Dialect", "DialectError", "Scores"]

DIALECTS: dict[str, type[Dialect]] = {
    "transformers": OwnDialect,
    "vllm": VllmDialect,
    "sglang": SglangDialect,
}
"""Engine → its dialect."""
