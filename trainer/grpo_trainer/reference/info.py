"""What a reference server tells of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReferenceInfo:
    """A reference server, as it was found. What a server does not tell is None.

    Attributes:
        model: hub id or path of the model it serves.
        version: name of the weights it has; what names them differs between servers, see the dialects.
        revision: revision of the model.
        dtype: what it computes in, such as `bfloat16`.
        vocabulary_size: ids are below it.
        tokenizer_hash: `grpo_scoring.tokenizer_hash` of its tokenizer.
        max_request_tokens: most tokens of one request.
        max_length: a prompt and a completion together have fewer tokens.
    """

    model: str
    version: str
    revision: str | None = None
    dtype: str | None = None
    vocabulary_size: int | None = None
    tokenizer_hash: str | None = None
    max_request_tokens: int | None = None
    max_length: int | None = None
