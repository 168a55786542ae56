"""The project's own server, `grpo-refserver`: `POST /v1/logprobs` in safetensors, `GET /v1/info`."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import numpy as np
from grpo_scoring.groups import Group
from grpo_scoring.problem import decode_problem
from grpo_scoring.wire import SAFETENSORS, LogprobsRequest, WireError, decode_answer, encode_request

from grpo_trainer.reference.dialects.dialect import Ask, DialectError, Scores, json_object
from grpo_trainer.reference.info import ReferenceInfo
from grpo_trainer.reference.transport import Call
from grpo_trainer.reference.version import ReferenceVersion


class OwnDialect:
    """Groups in, each prompt once; the version in request and answer (design §7)."""

    engine = "transformers"
    has_versions = True
    scales_temperature = True
    prompt_per_row = False
    max_request_tokens: int | None = None

    def info(self, ask: Ask) -> ReferenceInfo:
        """`GET /v1/info`."""
        told = json_object(ask(Call("GET", "/v1/info")))
        if not isinstance(told.get("model"), str) or not isinstance(told.get("version"), str):
            raise DialectError("/v1/info names no model and version")
        return ReferenceInfo(
            model=told["model"],
            version=told["version"],
            revision=told.get("revision"),
            dtype=told.get("dtype"),
            vocabulary_size=told.get("vocabSize"),
            tokenizer_hash=told.get("tokenizerHash"),
            max_request_tokens=told.get("maxRequestTokens"),
        )

    def has_token(self, ask: Ask, token: int) -> bool:
        """Never asked: `info` tells the vocabulary's size."""
        raise DialectError("/v1/info tells no vocabSize")

    def tokenize(self, ask: Ask, text: str) -> list[int] | None:
        """None: `info` tells the tokenizer's hash instead."""
        return None

    def encode(
        self, groups: Sequence[Group], *, temperature: float, version: ReferenceVersion | None, seconds: float
    ) -> Call:
        """`POST /v1/logprobs`."""
        request = LogprobsRequest(
            groups,
            temperature=temperature,
            deadline_seconds=seconds,
            version=version.name if version else None,
            version_path=version.path if version else None,
        )
        body = encode_request(request, SAFETENSORS)
        return Call("POST", "/v1/logprobs", body, {"Content-Type": SAFETENSORS})

    def decode(self, response: httpx.Response, groups: Sequence[Group]) -> Scores:
        """The answer, checked token for token against the groups."""
        media_type = response.headers.get("Content-Type", "").partition(";")[0]
        try:
            answer = decode_answer(response.content, media_type, groups)
        except (WireError, ValueError) as error:
            raise DialectError(str(error)) from error
        return Scores(np.split(answer.logprobs, answer.offsets[1:-1]), answer.version)

    def describe(self, response: httpx.Response) -> str:
        """RFC 9457 problem details, with the field."""
        problem = decode_problem(response.status_code, response.content)
        return f"{problem.detail} ({problem.field})" if problem.field else problem.detail
