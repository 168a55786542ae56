"""What a request may ask for, checked before it is queued."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from grpo_scoring.groups import Group, Ids
from starlette.requests import Request

from grpo_refserver.errors import ApiError


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body, never more than ``max_bytes`` of it in memory. Raises ApiError 413."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise too_large(f"{declared} bytes", max_bytes)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise too_large(f"more than {max_bytes} bytes", max_bytes)
    return bytes(body)


def too_large(size: str, max_bytes: int) -> ApiError:
    """The answer to a body over the limit."""
    return ApiError(413, f"the body has {size}, this server takes {max_bytes}: send fewer groups at a time", "body")


def check_groups(
    groups: Sequence[Group], *, vocab_size: int, max_sequence_length: int, max_request_tokens: int
) -> None:
    """Raises ApiError 413 where the request is too large, 422 where a group cannot be scored by this model.

    A token id the model does not have would end the process on a GPU, where an index is only checked by an assert.
    """
    tokens = sum(group.tokens for group in groups)
    if tokens > max_request_tokens:
        raise ApiError(
            413,
            f"the request has {tokens} tokens, this server takes {max_request_tokens}: send fewer groups at a time",
            "groups",
        )
    for index, group in enumerate(groups):
        if group.max_length > max_sequence_length:
            raise ApiError(
                422,
                f"a prompt with its completion has {group.max_length} tokens, the limit is {max_sequence_length} "
                "(the model's positions, or --max-sequence-length): shorten prompts or completions",
                f"groups[{index}]",
            )
        _check_ids(f"groups[{index}].prompt", group.prompt, vocab_size)
        for place, completion in enumerate(group.completions):
            _check_ids(f"groups[{index}].completions[{place}]", completion, vocab_size)


def _check_ids(field: str, ids: Ids, vocab_size: int) -> None:
    if ids.size and int(ids.max()) >= vocab_size:
        place = int(np.argmax(ids >= vocab_size))
        raise ApiError(
            422,
            f"token id {ids[place]} is outside the model's vocabulary of {vocab_size}: policy and reference must "
            "share a tokenizer",
            f"{field}[{place}]",
        )
