"""Rows of a batch → groups of one prompt, and groups → requests of a bounded size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grpo_scoring.groups import Group, Ids
from grpo_scoring.messages import MAX_COMPLETIONS


def group_rows(prompts: Sequence[list[int]], completions: Sequence[list[int]]) -> list[Group]:
    """Neighbouring rows with the same prompt → one group; the completions' order stays."""
    groups: list[tuple[list[int], list[list[int]]]] = []
    for prompt, completion in zip(prompts, completions, strict=True):
        if not groups or groups[-1][0] != prompt:
            groups.append((prompt, []))
        groups[-1][1].append(completion)
    return [Group.of(prompt, members) for prompt, members in groups]


def split_requests(
    groups: Sequence[Group], max_tokens: int | None, *, prompt_per_row: bool = False
) -> list[list[Group]]:
    """Cut groups into requests of at most `max_tokens` tokens (None: no limit) and ``MAX_COMPLETIONS`` completions.

    A group that is larger is cut too; a single row that is larger goes alone, and the server says what is wrong.

    Args:
        groups: in the order in which their answers are wanted.
        max_tokens: the limit.
        prompt_per_row: a prompt counts once for each completion, not once for its group.
    """
    requests: list[list[tuple[Ids, list[Ids]]]] = []
    limit = math.inf if max_tokens is None else max_tokens
    free, room = limit, 0
    for group in groups:
        prompt = group.prompt
        for completion in group.completions:
            goes_on = bool(requests) and requests[-1][-1][0] is prompt
            size = completion.size + (0 if goes_on and not prompt_per_row else prompt.size)
            if size > free or not room:
                requests.append([])
                goes_on, size, free, room = False, prompt.size + completion.size, limit, MAX_COMPLETIONS
            if not goes_on:
                requests[-1].append((prompt, []))
            requests[-1][-1][1].append(completion)
            free -= size
            room -= 1
    return [[Group(prompt, tuple(members)) for prompt, members in request] for request in requests]
