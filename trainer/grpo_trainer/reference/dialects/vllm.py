"""vLLM's OpenAI-compatible server: `POST /v1/completions` with `prompt_logprobs`.

Contract as of vLLM 0.32 (vllm/entrypoints/openai/completion/protocol.py, vllm/sampling_params.py): a prompt may be a
list of token ids; `prompt_logprobs: 0` gives, for each position but the first, the log-probability of the id that is
there, as `{"<id>": {"logprob": …}}`, from raw logits: temperature and penalties do not touch it. `max_tokens` is at
least 1, so a row must be one token shorter than the server's context. Requests with `prompt_logprobs` never read the
prefix cache: the prompt is computed again for each completion. Answers name the model, not its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
from grpo_scoring.groups import Group

from grpo_trainer.reference.dialects.dialect import (
    ROW_REQUEST_TOKENS,
    Ask,
    DialectError,
    Scores,
    error_message,
    finite,
    in_order,
    json_object,
    rows,
)
from grpo_trainer.reference.dialects.json_server import accepts_token, post, tokenize, whole_rows
from grpo_trainer.reference.info import ReferenceInfo
from grpo_trainer.reference.transport import Call
from grpo_trainer.reference.version import ReferenceVersion


class VllmDialect:
    """Rows in, JSON out; the version is the served model's name."""

    engine = "vllm"
    has_versions = False
    scales_temperature = False
    prompt_per_row = True
    max_request_tokens: int | None = ROW_REQUEST_TOKENS

    def __init__(self) -> None:
        self._model: str | None = None

    def info(self, ask: Ask) -> ReferenceInfo:
        """`GET /v1/models`: the first one is asked from now on."""
        told = json_object(ask(Call("GET", "/v1/models")))
        try:
            first = told["data"][0]
            name = str(first["id"])
        except (KeyError, IndexError, TypeError):
            raise DialectError("/v1/models lists no model") from None
        self._model = name
        return ReferenceInfo(model=first.get("root") or name, version=name, max_length=first.get("max_model_len"))

    def has_token(self, ask: Ask, token: int) -> bool:
        """Score the id; one that is out of the vocabulary is refused with 400."""
        return accepts_token(ask, self._score([[token, token]]))

    def tokenize(self, ask: Ask, text: str) -> list[int] | None:
        """`POST /tokenize`, which a server without a tokenizer does not have."""
        return tokenize(ask, text, self._model)

    def encode(
        self, groups: Sequence[Group], *, temperature: float, version: ReferenceVersion | None, seconds: float
    ) -> Call:
        """`POST /v1/completions`, one prompt per completion."""
        return self._score(whole_rows(rows(groups)))

    def decode(self, response: httpx.Response, groups: Sequence[Group]) -> Scores:
        """The completions' part of each row's `prompt_logprobs`; every id is checked."""
        told = json_object(response)
        wanted = rows(groups)
        choices = told.get("choices")
        if not isinstance(choices, list) or len(choices) != len(wanted):
            raise DialectError(f"/v1/completions answers no list of {len(wanted)} choices")
        try:
            ordered = sorted(choices, key=lambda choice: choice["index"])
            scored = [
                finite(_read(choice["prompt_logprobs"], group.prompt.size, completion.tolist()))
                for choice, (group, completion) in zip(ordered, wanted, strict=True)
            ]
            version = str(told["model"])
        except (KeyError, TypeError):
            raise DialectError("/v1/completions answers without prompt_logprobs of each position") from None
        return Scores(in_order(groups, scored), version)

    def describe(self, response: httpx.Response) -> str:
        """OpenAI's error body."""
        return error_message(response)

    def _score(self, prompts: list[list[int]]) -> Call:
        body = {
            "model": self._model,
            "prompt": prompts,
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
            "add_special_tokens": False,
        }
        return post("/v1/completions", body)


def _read(positions: list[dict[str, Any] | None], first: int, ids: list[int]) -> list[float]:
    if len(positions) != first + len(ids):
        raise DialectError(f"{len(positions)} positions came for a row of {first + len(ids)} tokens")
    return [_one(position, token) for position, token in zip(positions[first:], ids, strict=True)]


def _one(position: dict[str, Any] | None, token: int) -> float:
    entry = (position or {}).get(str(token))
    if entry is None:
        raise DialectError(f"a position that holds id {token} came back without it: it was not scored as it was sent")
    return float(entry["logprob"])
