"""The answers of ``/v1/completions`` and its relatives, in vLLM's and OpenAI's shapes."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from grpo_scoring.groups import Ids
from grpo_scoring.messages import LogprobsAnswer

from grpo_refserver import openai_schemas as schemas
from grpo_refserver.prefixes import SharedPrefixes


def completion(
    asked: schemas.CompletionRequest, prompts: Sequence[Ids], shared: SharedPrefixes, answer: LogprobsAnswer
) -> bytes:
    """The body that answers ``/v1/completions``."""
    choices = []
    for index, (prompt, places) in enumerate(zip(prompts, shared.places, strict=True)):
        ids, logprobs = prompt.tolist(), answer.logprobs[places].tolist()
        choice: dict[str, Any] = {"index": index, "text": "", "finish_reason": "length", "stop_reason": None}
        choice["prompt_logprobs"] = _prompt_logprobs(ids, logprobs) if asked.prompt_logprobs is not None else None
        echoed = asked.echo and asked.logprobs is not None
        choice["logprobs"] = _echo(ids, logprobs) if echoed else None
        if asked.return_token_ids:
            choice |= {"prompt_token_ids": ids, "token_ids": []}
        choices.append(choice)
    tokens = sum(prompt.size for prompt in prompts)
    return _encode(
        {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": answer.model,
            "system_fingerprint": answer.version,
            "choices": choices,
            "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
        }
    )


def generated(
    asked: schemas.GenerateRequest, prompts: Sequence[Ids], shared: SharedPrefixes, answer: LogprobsAnswer
) -> bytes:
    """The body that answers ``/inference/v1/generate``."""
    return _encode(
        {
            "request_id": asked.request_id or uuid.uuid4().hex,
            "choices": [{"index": 0, "logprobs": None, "finish_reason": "length", "token_ids": []}],
            "prompt_logprobs": _prompt_logprobs(prompts[0].tolist(), answer.logprobs[shared.places[0]].tolist()),
        }
    )


def _prompt_logprobs(ids: list[int], logprobs: list[float]) -> list[dict[str, Any] | None]:
    entries: list[dict[str, Any] | None] = [None]
    for token, logprob in zip(ids[1:], logprobs, strict=True):
        entries.append({str(token): {"logprob": logprob, "rank": None, "decoded_token": None}})
    return entries


def _echo(ids: list[int], logprobs: list[float]) -> dict[str, Any]:
    tokens = [f"token_id:{token}" for token in ids]
    offsets, end = [], 0
    for token in tokens:
        offsets.append(end)
        end += len(token)
    top = [{token: logprob} for token, logprob in zip(tokens[1:], logprobs, strict=True)]
    return {
        "tokens": tokens,
        "token_logprobs": [None, *logprobs],
        "top_logprobs": [None, *top],
        "text_offset": offsets,
    }


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
