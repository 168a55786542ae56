"""SGLang's server: `POST /generate` with `return_logprob`.

Contract as of SGLang 0.5.23 (python/sglang/srt/managers/io_struct.py, GenerateReqInput; …/managers/
scheduler_components/logprob_result_processor.py): `input_ids` may be a list of rows; with `logprob_start_len` s,
`meta_info.input_token_logprobs` holds `[log-probability, id, text]` of the positions from s on, the first without a
value; the temperature does not touch them; `max_new_tokens: 0` computes nothing else. The last id of the vocabulary
comes back as 0. The prefix cache is read up to s, but rows of one batch do not find each other's prompt in it.
Answers carry `meta_info.weight_version`.
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
    json_value,
    rows,
)
from grpo_trainer.reference.dialects.json_server import accepts_token, post, tokenize, whole_rows
from grpo_trainer.reference.info import ReferenceInfo
from grpo_trainer.reference.transport import Call
from grpo_trainer.reference.version import ReferenceVersion

_NO_VERSION = "default"


class SglangDialect:
    """Rows in, JSON out; the version is SGLang's `weight_version`."""

    engine = "sglang"
    has_versions = False
    scales_temperature = False
    prompt_per_row = True
    max_request_tokens: int | None = ROW_REQUEST_TOKENS

    def info(self, ask: Ask) -> ReferenceInfo:
        """`GET /model_info`, or its older name; `GET /server_info` for the longest row."""
        response = ask(Call("GET", "/model_info"), passes=frozenset({404}))
        if response.status_code == 404:
            response = ask(Call("GET", "/get_model_info"))
        told = json_object(response)
        if not isinstance(told.get("model_path"), str):
            raise DialectError("/model_info names no model_path")
        response = ask(Call("GET", "/server_info"), passes=frozenset({404}))
        limit = json_object(response).get("max_req_input_len") if response.status_code == 200 else None
        return ReferenceInfo(
            model=told["model_path"],
            version=str(told.get("weight_version") or _NO_VERSION),
            max_length=limit if isinstance(limit, int) else None,
        )

    def has_token(self, ask: Ask, token: int) -> bool:
        """Ask for the id's own log-probability: what lies beyond the vocabulary is refused, and not computed.

        An input id is not checked by SGLang: on a GPU one beyond the vocabulary ends the server.
        """
        return accepts_token(ask, self._generate([[0, 0]], [0], token_ids_logprob=[[token]]))

    def tokenize(self, ask: Ask, text: str) -> list[int] | None:
        """`POST /tokenize`, which older servers do not have."""
        return tokenize(ask, text, "default")

    def encode(
        self, groups: Sequence[Group], *, temperature: float, version: ReferenceVersion | None, seconds: float
    ) -> Call:
        """`POST /generate`, one row per completion, log-probabilities from the prompt's last token on."""
        wanted = rows(groups)
        return self._generate(whole_rows(wanted), [group.prompt.size - 1 for group, _ in wanted])

    def decode(self, response: httpx.Response, groups: Sequence[Group]) -> Scores:
        """The values of each row; every id is checked."""
        told = json_value(response)
        wanted = rows(groups)
        if not isinstance(told, list) or len(told) != len(wanted):
            raise DialectError(f"/generate answers no list of {len(wanted)} results")
        try:
            metas = [one["meta_info"] for one in told]
            scored = [
                finite(_read(meta["input_token_logprobs"], completion.tolist()))
                for meta, (_, completion) in zip(metas, wanted, strict=True)
            ]
            versions = {str(meta.get("weight_version") or _NO_VERSION) for meta in metas}
        except (KeyError, TypeError, AttributeError):
            raise DialectError("/generate answers without meta_info.input_token_logprobs") from None
        if len(versions) > 1:
            raise DialectError(f"one request was scored with several weight versions: {', '.join(sorted(versions))}")
        return Scores(in_order(groups, scored), versions.pop())

    def describe(self, response: httpx.Response) -> str:
        """`{"error": {"message": …}}`."""
        return error_message(response)

    @staticmethod
    def _generate(input_ids: list[list[int]], starts: list[int], **further: Any) -> Call:
        body = {
            "input_ids": input_ids,
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": starts,
            **further,
        }
        return post("/generate", body)


def _read(entries: list[list[Any]], ids: list[int]) -> list[float]:
    """Values of a completion; the first entry is the prompt's last token, which has none."""
    if len(entries) != len(ids) + 1:
        raise DialectError(f"{len(entries) - 1} log-probabilities came for a completion of {len(ids)} tokens")
    values = []
    for (value, token, *_), sent in zip(entries[1:], ids, strict=True):
        if token not in (sent, 0):
            raise DialectError(f"id {token} came back for {sent}: it was not scored as it was sent")
        values.append(float(value))
    return values
