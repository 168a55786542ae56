"""The messages of ``/v1/completions`` and its relatives: OpenAI's, with the fields by which vLLM scores prompts.

Names and shapes are those of vLLM's own servers (vllm/entrypoints/openai/completion/protocol.py, vllm/logprobs.py,
vllm/entrypoints/serve/disagg/protocol.py), as TRL's ``VLLMClient.get_sequence_logprobs`` and prime-rl's
``compute_prefill_logprobs`` read them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from grpo_scoring.wire_json import TokenId
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema


def _off(value: bool) -> bool:
    """``Literal[False]`` would take 0.0."""
    if value:
        raise ValueError("must be false")
    return value


TokenIds = Annotated[list[TokenId], Field(min_length=1)]
Zero = Annotated[int, Field(ge=0, le=0)]
One = Annotated[int, Field(ge=1, le=1)]
Off = Annotated[bool, AfterValidator(_off), WithJsonSchema({"type": "boolean", "const": False})]
_UNUSED = "Shapes generated tokens, of which there are none: taken and without effect."


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Sampling(_Request):
    """What other servers take to shape generated tokens. Listed, so that a misspelt field is refused."""

    top_p: float | None = Field(default=None, description=_UNUSED)
    top_k: int | None = Field(default=None, description=_UNUSED)
    min_p: float | None = Field(default=None, description=_UNUSED)
    seed: int | None = Field(default=None, description=_UNUSED)
    stop: str | list[str] | None = Field(default=None, description=_UNUSED)
    stop_token_ids: list[int] | None = Field(default=None, description=_UNUSED)
    min_tokens: int | None = Field(default=None, description=_UNUSED)
    ignore_eos: bool | None = Field(default=None, description=_UNUSED)
    frequency_penalty: float | None = Field(default=None, description=_UNUSED)
    presence_penalty: float | None = Field(default=None, description=_UNUSED)
    repetition_penalty: float | None = Field(default=None, description=_UNUSED)
    logit_bias: dict[str, float] | None = Field(default=None, description=_UNUSED)
    skip_special_tokens: bool | None = Field(default=None, description=_UNUSED)
    spaces_between_special_tokens: bool | None = Field(default=None, description=_UNUSED)
    detokenize: bool | None = Field(default=None, description=_UNUSED)

    temperature: float | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Logits are divided by it, as in sampling; absent, null and 0 (greedy) leave them as they are, "
        "and what is between 0 and 0.001 is refused. "
        "vLLM does not scale the log-probabilities of prompts.",
    )
    n: One | None = Field(default=None, description="One choice per prompt.")


class CompletionRequest(_Sampling):
    """Scores prompts. ``prompt_logprobs``, or ``echo`` with ``logprobs``, asks for it; nothing is generated."""

    model: str | None = Field(default=None, description="The served model's id, as /v1/models gives it; null: any.")
    prompt: TokenIds | Annotated[list[TokenIds], Field(min_length=1)] = Field(
        description="Token ids of one sequence, or of several. Text is refused: this server does not tokenize."
    )
    max_tokens: Annotated[int, Field(ge=0, le=1)] = Field(
        description="0, or 1 for clients of servers that must generate one; no token is generated."
    )
    prompt_logprobs: Zero | None = Field(
        default=None, description="0 gives each prompt token's log-probability; alternatives are not given."
    )
    echo: bool | None = Field(default=None, description="Give the prompt's tokens in the choice's logprobs.")
    logprobs: Zero | None = Field(default=None, description="With echo: 0 gives the prompt tokens' log-probabilities.")
    return_token_ids: bool | None = Field(default=None, description="Give the token ids in each choice.")
    return_tokens_as_token_ids: bool | None = Field(default=None, description="Always so: tokens are 'token_id:<id>'.")
    add_special_tokens: bool | None = Field(default=None, description="Concerns text, which is not taken: no effect.")
    stream: Off | None = Field(default=None, description="The answer comes in one piece.")
    best_of: One | None = Field(default=None, description="One choice per prompt.")
    user: str | None = Field(default=None, description="Without effect.")
    request_id: str | None = Field(default=None, max_length=128, description="Without effect.")


class GenerateSampling(_Sampling):
    """Sampling parameters of a tokens-in, tokens-out request."""

    max_tokens: Annotated[int, Field(ge=0, le=1)] = Field(description="As in /v1/completions.")
    prompt_logprobs: Annotated[int, Field(ge=0, le=1)] = Field(
        description="0; or 1, which prime-rl's teacher sends and of which it reads the given token alone. Alternatives "
        "are not given."
    )
    logprobs: None = Field(default=None, description="Of generated tokens, of which there are none.")


class GenerateRequest(_Request):
    """Scores one sequence: vLLM's tokens-in, tokens-out route, which prime-rl's teacher asks."""

    model: str | None = Field(default=None, description="As in /v1/completions.")
    token_ids: TokenIds
    sampling_params: GenerateSampling
    stream: Off | None = Field(default=None, description="The answer comes in one piece.")
    request_id: str | None = Field(default=None, max_length=128, description="Given back.")


class TokenLogprob(BaseModel):
    """vLLM's ``Logprob``."""

    logprob: float
    rank: None = Field(default=None, description="Null: places among the alternatives are not computed.")
    decoded_token: None = Field(default=None, description="Null: this server does not tokenize.")


PromptLogprobs = list[dict[str, TokenLogprob] | None]
"""One entry per prompt token, with the token's own id alone; the first is null."""


class CompletionLogprobs(BaseModel):
    """OpenAI's ``logprobs`` of a choice, with tokens written as ``token_id:<id>``."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One scored prompt."""

    index: int
    text: str = Field(default="", description="Empty: nothing is generated, nothing is detokenized.")
    logprobs: CompletionLogprobs | None = None
    finish_reason: Literal["length"] = "length"
    stop_reason: None = None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None


class Usage(BaseModel):
    """Tokens of the request."""

    prompt_tokens: int
    completion_tokens: Literal[0] = 0
    total_tokens: int


class Completion(BaseModel):
    """The scored prompts, in their order."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str = Field(description="Version of the reference that scored.")
    choices: list[CompletionChoice]
    usage: Usage


class GenerateChoice(BaseModel):
    """The tokens that were generated: none."""

    index: Literal[0] = 0
    logprobs: None = None
    finish_reason: Literal["length"] = "length"
    token_ids: list[int] = []


class Generated(BaseModel):
    """A scored sequence, in the shape of vLLM's ``GenerateResponse``."""

    request_id: str
    choices: list[GenerateChoice]
    prompt_logprobs: PromptLogprobs


class ModelCard(BaseModel):
    """The served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["grpo"] = "grpo"
    root: str
    parent: None = None
    max_model_len: int = Field(description="Most tokens of one sequence.")


class ModelList(BaseModel):
    """What is served: one model."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class OpenAIErrorDetail(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    """An error as OpenAI's clients read it."""

    error: OpenAIErrorDetail


def json_schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """A request body's part of the OpenAPI document."""
    reference = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}
