"""The trained model as a transformers folder: weights of all shards in safetensors, configuration, tokenizer."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from grpo_api.layout import final_model

from grpo_trainer.distributed import Communicator
from grpo_trainer.policy import Policy

logger = logging.getLogger(__name__)


def save_final_model(policy: Policy, tokenizer: Any, output_dir: Path, communicator: Communicator) -> Path:
    """Write `final/`; a reader sees the whole folder or none. A collective.

    Raises:
        AgreedFault: it could not be written.
    """
    weights = consolidated_weights(policy)
    final = Path(final_model(str(output_dir)))

    def write() -> None:
        partial = final.with_name(f"{final.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        write_model(partial, policy, tokenizer, weights)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        logger.info("the trained model is in %s", final)

    communicator.agree(lambda: write() if communicator.is_main else None)
    return final


def consolidated_weights(policy: Policy) -> dict[str, Any] | None:
    """The whole state dict on rank 0, in the training dtype; None elsewhere under ZeRO-3. A collective."""
    if policy.is_sharded:
        return policy.engine._zero3_consolidated_16bit_state_dict()  # type: ignore[no-any-return]
    return policy.module.state_dict()  # type: ignore[no-any-return]


def write_model(
    folder: Path, policy: Policy, tokenizer: Any, weights: dict[str, Any] | None, *, max_shard_size: str = "50GB"
) -> None:
    """Write a transformers folder that every user may read; files of weights have at most `max_shard_size`."""
    policy.module.save_pretrained(folder, state_dict=weights, max_shard_size=max_shard_size)
    tokenizer.save_pretrained(folder)
    make_readable(folder)


def make_readable(folder: Path) -> None:
    """Let every user read a folder of files: safetensors lets only the owner, and a serving pod is another user."""
    folder.chmod(folder.stat().st_mode | 0o555)
    for path in folder.iterdir():
        path.chmod(path.stat().st_mode | 0o444)
