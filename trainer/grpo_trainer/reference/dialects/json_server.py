"""What vLLM's and SGLang's servers have in common: JSON, `POST /tokenize`, and how they refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
from grpo_scoring.groups import Group

from grpo_trainer.reference.dialects.dialect import Ask, DialectError, error_message, json_object
from grpo_trainer.reference.transport import Call

REFUSED = frozenset({400, 404, 405, 501})
"""Answers that say that a server does not know an id or a route."""


def post(path: str, body: dict[str, Any]) -> Call:
    """A JSON body, without spaces: it is mostly token ids."""
    content = json.dumps(body, separators=(",", ":")).encode()
    return Call("POST", path, content, {"Content-Type": "application/json"})


def whole_rows(pairs: Sequence[tuple[Group, Any]]) -> list[list[int]]:
    """(group, completion) pairs → the ids of the prompt with those of the completion."""
    return [[*group.prompt.tolist(), *completion.tolist()] for group, completion in pairs]


def accepts_token(ask: Ask, call: Call) -> bool:
    """Whether the id that `call` is about is in the vocabulary: else it is refused with 400. Raises DialectError."""
    response = ask(call, passes=REFUSED)
    if response.status_code == 200:
        return True
    if response.status_code == 400 and "vocab" in response.text:
        return False
    raise DialectError(f"{call.path} answers {response.status_code}: {error_message(response)}")


def tokenize(ask: Ask, text: str, model: str | None) -> list[int] | None:
    """A text's ids, by `POST /tokenize`; None from a server that has no tokenizer, or not this route."""
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    response: httpx.Response = ask(post("/tokenize", body), passes=REFUSED)
    tokens = json_object(response).get("tokens") if response.status_code == 200 else None
    return tokens if isinstance(tokens, list) else None
