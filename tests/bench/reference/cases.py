"""What is scored: the rows of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_scoring.groups import Group

from tests.bench.reference.prompts import FEW_SHOT, ZERO_SHOT, Tokenised

SHARE = 0.9
"""Of the ratio of tokens, so much must be reached as speed-up over full-logit rows."""


@dataclass(frozen=True)
class Case:
    """Groups, and what is wanted of them."""

    name: str
    groups: Sequence[Group]
    target: float
    """Speed-up through HTTP over full-logit rows."""

    @property
    def token_ratio(self) -> float:
        """G·(P + C) / (P + G·C): what computing each prompt once can give."""
        return sum(group.row_tokens for group in self.groups) / sum(group.tokens for group in self.groups)

    @property
    def conditions(self) -> dict[str, object]:
        """The lengths, for the table."""
        return {
            "prompt": [group.prompt.size for group in self.groups],
            "completions": [[completion.size for completion in group.completions] for group in self.groups],
            "tokenRatio": round(self.token_ratio, 3),
        }


def cases(data: Tokenised, *, quick: bool) -> list[Case]:
    """The rows; with `quick` two small ones that show that everything runs."""

    def exact(prompt: int, completion: int, size: int, target: float) -> Case:
        return Case(f"{prompt}/{completion}/{size}", data.exact(prompt, completion, size), target)

    def ragged(name: str, groups: list[Group]) -> Case:
        case = Case(name, groups, 1.0)
        return Case(name, groups, max(1.0, SHARE * case.token_ratio))

    if quick:
        few = data.ragged(0, [3, 2], ZERO_SHOT, prompt=1024, completion=48)
        return [exact(128, 32, 4, 2.0), ragged("ragged, zero-shot", few)]
    return [
        exact(512, 128, 8, 3.0),
        exact(256, 256, 8, 1.6),
        exact(64, 512, 8, 1.0),
        exact(1024, 64, 16, 7.6),
        ragged("ragged, zero-shot", data.ragged(0, [8, 6, 4], ZERO_SHOT, prompt=1024, completion=256)),
        ragged("ragged, few-shot", data.ragged(20, [5, 3], FEW_SHOT, prompt=1024, completion=256)),
    ]
