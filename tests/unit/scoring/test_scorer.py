"""The scorer: values, fallbacks, merging, budgets."""

import numpy as np
import pytest
import torch
import transformers
from grpo_scoring import scorer as scorer_module
from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.groups import Group
from grpo_scoring.scorer import Scorer

from tests.assets.tiny import SIZES

SHAPES = [(23, [9, 17, 1, 17]), (7, [5, 0, 20]), (1, [1]), (30, [8, 8]), (12, [3] * 16)]


def close(ours, theirs) -> None:
    """5e-6, relative to the larger of 1 and the log-probability."""
    torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(theirs), atol=5e-6, rtol=5e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_values_are_those_of_full_logits(family_model, random_groups, plain, temperature):
    groups = random_groups(SHAPES)
    expected = torch.cat(plain(family_model, groups, temperature))
    scorer = Scorer(family_model)
    assert scorer.shares_prompts, scorer.why_not
    close(scorer.score(groups, temperature=temperature).values, expected)


@pytest.mark.parametrize("budget", [1, 40, 100])
def test_the_budget_changes_rounding_alone(llama, random_groups, plain, budget):
    groups = random_groups(SHAPES)
    close(Scorer(llama, max_batch_tokens=budget, chunk_size=5).score(groups).values, torch.cat(plain(llama, groups)))


def test_a_prompt_of_several_groups_is_computed_once(llama, random_groups, plain, monkeypatch):
    (group,) = random_groups([(40, [6, 7, 8, 9])])
    halves = [Group(group.prompt, group.completions[:2]), Group(group.prompt, group.completions[2:])]
    other = random_groups([(5, [4])], seed=9)
    computed = []
    packed = scorer_module.packed_logprobs

    def counting(model, layout, **options):
        computed.append(layout.ids.numel())
        return packed(model, layout, **options)

    scorer = Scorer(llama)
    monkeypatch.setattr(scorer_module, "packed_logprobs", counting)
    groups = [halves[0], *other, halves[1]]
    close(scorer.score(groups).values, torch.cat(plain(llama, groups)))
    assert computed == [40 + 5 + 6 + 7 + 8 + 5 + 3]


def test_batch_tokens_are_what_a_forward_computes(llama, random_groups):
    shared, empty, mixed = random_groups([(120, [6, 7]), (40, [0]), (40, [0, 9])])
    scorer = Scorer(llama)
    assert [scorer.batch_tokens(GroupSizes.of_group(group)) for group in (shared, empty, mixed)] == [120 + 5 + 6, 0, 48]
    rows = Scorer(llama, share_prompts=False)
    assert [rows.batch_tokens(GroupSizes.of_group(group)) for group in (shared, empty, mixed)] == [2 * 126, 0, 48]
    assert rows.why_not == "plain rows are asked for"


def test_alone_a_group_is_bit_identical_to_itself(llama, random_groups):
    groups = random_groups(SHAPES)
    scorer = Scorer(llama)
    for group in groups:
        assert np.array_equal(scorer.score([group]).values, scorer.score([group]).values)


FALLBACKS = {
    "gpt-oss": (
        lambda common: transformers.GptOssConfig(
            **common, head_dim=32, sliding_window=12, num_local_experts=2, num_experts_per_tok=1
        ),
        "s_aux",
    ),
    "llama4": (
        lambda common: transformers.Llama4TextConfig(
            **common, head_dim=16, intermediate_size_mlp=128, num_local_experts=2, attention_chunk_size=16
        ),
        "chunked_attention",
    ),
    "bloom": (
        lambda common: transformers.BloomConfig(vocab_size=320, hidden_size=64, n_layer=2, n_head=4),
        "attention interface",
    ),
}


@pytest.mark.parametrize("family", list(FALLBACKS))
def test_a_model_that_cannot_share_is_scored_in_rows_and_says_so(random_groups, plain, family):
    config, reason = FALLBACKS[family]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config(SIZES), dtype=torch.float32).eval()
    groups = random_groups(SHAPES)
    expected = torch.cat(plain(model, groups))
    implementation = model.config._attn_implementation
    scorer = Scorer(model)
    assert not scorer.shares_prompts
    assert reason in scorer.why_not
    assert model.config._attn_implementation == implementation, "its own attention is back"
    close(scorer.score(groups).values, expected)


def test_an_attention_that_forgets_the_window_is_found_out(make_model, monkeypatch):
    """The comparison at construction can fail: a kernel that ignores windows must not be used."""
    import grpo_scoring.prefix_attention as attention

    plain_masked = attention.masked
    monkeypatch.setattr(
        attention, "masked", lambda *args, window=None, **options: plain_masked(*args, window=None, **options)
    )
    scorer = Scorer(make_model("mistral-sliding"))
    assert not scorer.shares_prompts
    assert "differ" in scorer.why_not


def test_a_merged_kernel_that_fails_leaves_the_masked_one(llama, random_groups, plain, monkeypatch):
    import grpo_scoring.prefix_attention as attention

    def broken(*args, **options):
        raise RuntimeError("no such kernel on this device")

    monkeypatch.setattr(attention, "merged", broken)
    groups = random_groups(SHAPES)
    scorer = Scorer(llama)
    assert scorer.shares_prompts
    close(scorer.score(groups).values, torch.cat(plain(llama, groups)))
