"""Rows of a batch → groups of one prompt, and groups → requests of a bounded size."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_scoring.groups import Group


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
    """Cut groups into requests of at most `max_tokens` tokens (None: no limit).

    A group that is larger is cut too; a single row that is larger goes alone, and the server says what is wrong.

    Args:
        groups: in the order in which their answers are wanted.
        max_tokens: the limit.
        prompt_per_row: a prompt counts once for each completion, not once for its group.
    """
    if max_tokens is None:
        return [list(groups)]
    requests: list[list[Group]] = []
    free = 0
    for group in groups:
        for completion in group.completions:
            goes_on = bool(requests) and requests[-1][-1].prompt is group.prompt
            shared = goes_on and not prompt_per_row
            size = completion.size if shared else group.prompt.size + completion.size
            if not requests or size > free:
                requests.append([])
                goes_on, size, free = False, group.prompt.size + completion.size, max_tokens
            last = requests[-1]
            if goes_on:
                last[-1] = Group(group.prompt, (*last[-1].completions, completion))
            else:
                last.append(Group(group.prompt, (completion,)))
            free -= size
    return requests
