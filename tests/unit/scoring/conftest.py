"""Tiny random models of several families, ragged groups for them, and the plain way to score.

Helpers are fixtures that return functions: test modules cannot import from each other in importlib mode.
"""

from collections.abc import Callable

import hypothesis
import pytest
import torch
import transformers
from grpo_scoring.groups import Group

from tests.assets.tiny import SIZES, VOCABULARY, full_logit_logprobs, random_model

# No assertion on the clock: the machine may be busy.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")
torch.set_num_threads(1)  # tiny tensors: threads only wait for each other

COMMON = SIZES | {"num_hidden_layers": 3, "max_position_embeddings": 512}
FAMILIES = {
    "llama": lambda: transformers.LlamaConfig(**COMMON),
    "qwen2-tied": lambda: transformers.Qwen2Config(**COMMON, tie_word_embeddings=True),
    "qwen3": lambda: transformers.Qwen3Config(**COMMON, head_dim=32),
    "mistral-sliding": lambda: transformers.MistralConfig(**COMMON, sliding_window=12),
    "gemma2": lambda: transformers.Gemma2Config(
        **COMMON,
        head_dim=32,
        sliding_window=12,
        query_pre_attn_scalar=32,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=3.0,
    ),
    "cohere": lambda: transformers.CohereConfig(**COMMON, logit_scale=0.3),
    "granite": lambda: transformers.GraniteConfig(**COMMON, logits_scaling=3.0),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=512, n_embd=64, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2
    ),
}


def make_model(family: str) -> transformers.PreTrainedModel:
    """A random fp32 model in eval mode, with weights large enough that log-probabilities differ."""
    return random_model(FAMILIES[family]())


def random_groups(shape: list[tuple[int, list[int]]], seed: int = 3) -> list[Group]:
    """Groups of random ids: for each, the prompt's length and its completions' lengths."""
    generator = torch.Generator().manual_seed(seed)

    def ids(length: int) -> list[int]:
        return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()

    return [Group.of(ids(prompt), [ids(length) for length in lengths]) for prompt, lengths in shape]


RAGGED = [(23, [9, 17, 1, 17]), (7, [5, 0, 20]), (1, [1]), (30, [8, 8])]


def plain_logprobs(model, groups: list[Group], temperature: float = 1.0) -> list[torch.Tensor]:
    """The plain way, as fp32 tensors."""
    return [torch.from_numpy(row).float() for row in full_logit_logprobs(model, groups, temperature)]


def left_padded_batch(
    groups: list[Group], prompt_width: int, completion_width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """TRL's batch: left-padded prompts next to right-padded completions; ids and mask (B, P + C)."""
    rows = [(group.prompt, completion) for group in groups for completion in group.completions]
    ids = torch.zeros(len(rows), prompt_width + completion_width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, (prompt, completion) in enumerate(rows):
        span = slice(prompt_width - len(prompt), prompt_width + len(completion))
        ids[index, span] = torch.tensor([*prompt.tolist(), *completion.tolist()])
        mask[index, span] = 1
    return ids, mask


@pytest.fixture(params=list(FAMILIES))
def family_model(request: pytest.FixtureRequest) -> transformers.PreTrainedModel:
    return make_model(request.param)


@pytest.fixture
def llama() -> transformers.PreTrainedModel:
    return make_model("llama")


@pytest.fixture
def ragged() -> list[Group]:
    return random_groups(RAGGED)


@pytest.fixture(scope="session", name="make_model")
def make_model_fixture() -> Callable[[str], transformers.PreTrainedModel]:
    return make_model


@pytest.fixture(scope="session", name="random_groups")
def random_groups_fixture() -> Callable[[list[tuple[int, list[int]]]], list[Group]]:
    return random_groups


@pytest.fixture(scope="session")
def plain() -> Callable[..., list[torch.Tensor]]:
    return plain_logprobs


@pytest.fixture(scope="session")
def padded() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    return left_padded_batch
