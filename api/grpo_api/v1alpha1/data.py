"""spec.dataset and spec.rewards: what is asked, and how answers are judged."""

from typing import Annotated, Literal

from pydantic import Field

from .base import Model
from .model import Name, ObjectName


class Dataset(Model):
    """The prompts."""

    name: Name
    """Hub id, or a path in a mounted volume to json, jsonl or parquet files (or a folder of them)."""
    config: Annotated[str, Field(max_length=256)] | None = None
    """Configuration (subset) of a hub dataset."""
    split: Annotated[str, Field(min_length=1, max_length=256)] = "train"
    """Split, in the syntax of `datasets`: `train`, `train[:1000]`."""
    prompt_column: Annotated[str, Field(min_length=1, max_length=256)] = "prompt"
    """Column with the prompt: text, or a list of chat messages. All other columns go to the rewards."""
    system_prompt: Annotated[str, Field(max_length=32768)] | None = None
    """System message put before every prompt; needs a tokenizer with a chat template."""
    max_prompt_length: Annotated[int, Field(ge=1)] = 512
    """Longest prompt in tokens; longer ones are dropped, and their number is logged."""
    shuffle: bool = True
    """Whether the order is shuffled, anew each epoch."""
    seed: Annotated[int, Field(ge=0)] = 42
    """Seed of the order."""


class RewardFunction(Model):
    """One function that judges completions."""

    function: Annotated[
        str, Field(max_length=256, pattern="^(accuracy|format|[A-Za-z_][A-Za-z0-9_.]*[.:][A-Za-z_][A-Za-z0-9_]*)$")
    ]
    """`accuracy` (math-verify against the column `solution` or `answer`), `format`, or `module:function`."""
    weight: float = 1.0
    """Factor of this function's reward in the sum."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Seconds one call may take, for all completions of a rank's batch."""
    on_error: Literal["fail", "zero"] = "fail"
    """An exception or time-out ends the run with its message (`fail`), or counts as reward 0 (`zero`)."""


class CodeFrom(Model):
    """Where reward modules come from."""

    config_map: ObjectName
    """Name of a ConfigMap of Python files; it is mounted on the trainer's PYTHONPATH."""


class Rewards(Model):
    """How completions are judged."""

    functions: Annotated[list[RewardFunction], Field(min_length=1, max_length=16)]
    """The reward is the weighted sum of these."""
    code_from: CodeFrom | None = None
    """Where `module:function` names are found, besides what the trainer image has installed."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Divide advantages by the standard deviation of each group, of the whole batch, or not at all."""
