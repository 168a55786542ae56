"""Real prompts and real answers: the package champ-dataset (MIT), tokenised with the model's chat template.

It holds 270 competition problems, each with the conversations of several language models about it: zero-shot,
five-shot, with hints. A group is a problem's prompt and the answers that models gave to that problem. Lengths are cut
as GRPO cuts them: prompts keep their last tokens (TRL's max_prompt_length), completions their first
(max_completion_length).
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from typing import Any

from grpo_scoring.groups import Group

ROLES = {"System": "system", "User": "user", "Imputation": "assistant"}
FEW_SHOT, HINTED, ZERO_SHOT = "5-Shot", "Problem C w/ H", "0-Shot"
SHORTEST_ANSWER = 200
"""Characters: what is shorter repeats a final answer."""


@functools.cache
def problems() -> list[dict[str, Any]]:
    """The data set's problems, in its order."""
    text = importlib.resources.files("champ_dataset").joinpath("dataset_files/v0.json").read_text()
    return list(json.loads(text)["problems"].values())


def prompt_of(problem: dict[str, Any], setting: str) -> list[dict[str, str]]:
    """The messages before the first answer of a model, in one of the data set's settings."""
    messages = next(talk["messages"] for name, talk in problem["conversations"].items() if name.endswith(f"|{setting}"))
    first = next(place for place, message in enumerate(messages) if message["role"].startswith("Model."))
    return [{"role": ROLES[message["role"]], "content": message["text"]} for message in messages[:first]]


def answers_of(problem: dict[str, Any]) -> list[str]:
    """Every different answer that a model gave to this problem, whatever the setting."""
    texts = (
        message["text"]
        for talk in problem["conversations"].values()
        for message in talk["messages"]
        if message["role"].startswith("Model.") and message["text"] and len(message["text"]) >= SHORTEST_ANSWER
    )
    return list(dict.fromkeys(texts))


class Tokenised:
    """Groups of token ids.

    Args:
        tokenizer: transformers' tokenizer of the model, with its chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def ragged(self, first: int, sizes: list[int], setting: str, *, prompt: int, completion: int) -> list[Group]:
        """One group per problem from `first` on, `sizes` completions each, of their own lengths up to the limits."""
        chosen = problems()[first : first + len(sizes)]
        return [
            Group.of(self._prompt(problem, setting)[-prompt:], self._answers(problem, size, completion))
            for problem, size in zip(chosen, sizes, strict=True)
        ]

    def exact(self, prompt: int, completion: int, size: int, count: int = 1) -> list[Group]:
        """`count` groups of exactly these lengths: few-shot prompts, and answers that are long enough."""
        groups = []
        for problem in problems():
            ids = self._prompt(problem, FEW_SHOT)
            long = [answer for answer in self._answers(problem, None, completion) if len(answer) == completion]
            if len(ids) >= prompt and len(long) >= size:
                groups.append(Group.of(ids[-prompt:], long[:size]))
            if len(groups) == count:
                return groups
        raise ValueError(f"the data set has no {count} problems with {size} answers of {completion} tokens")

    def _prompt(self, problem: dict[str, Any], setting: str) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            prompt_of(problem, setting), tokenize=False, add_generation_prompt=True
        )
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _answers(self, problem: dict[str, Any], size: int | None, completion: int) -> list[list[int]]:
        texts = answers_of(problem)[:size]
        return [self._tokenizer(text, add_special_tokens=False)["input_ids"][:completion] for text in texts]
