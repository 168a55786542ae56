"""The Scorer against transformers' own forward, family by family, and controls: each way to be wrong is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpo_scoring.prefix_attention
import grpo_scoring.scorer
import numpy as np
import pytest
import torch
from grpo_scoring.groups import Group
from grpo_scoring.head import LogitTransform
from grpo_scoring.layout import Layout
from grpo_scoring.prefix_attention import UnsupportedAttentionError, packed_attention
from grpo_scoring.scorer import Scorer
from grpo_scoring.sharing import SharingCost

from tests.unit.scoring.architectures import EAGER_ONLY, ROWS, SHARING, difference, groups, ids, make, plain

BOUND = 5e-6
"""Relative to the larger of 1 and the log-probability: fp32 rounding of some dozen operations."""
SEEN = 100 * BOUND
"""What a control must differ by at least."""

RAGGED = groups([(23, [9, 17, 1, 17]), (7, [5, 0, 20]), (1, [1, 4]), (61, [8, 8, 8]), (30, [40])])


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are shared whatever the cost model says: for tiny models it would seldom pay."""
    monkeypatch.setattr(SharingCost, "shares", lambda self, sizes: True)


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same packed row, but every prompt computed for each completion."""
    monkeypatch.setattr(SharingCost, "shares", lambda self, sizes: sizes.count == 1)


def agrees(name: str, wanted: list[Group], *, attention: str = "eager", temperature: float = 1.0, **how: Any) -> None:
    scorer = Scorer(make(SHARING[name](), attention=attention), **how)
    assert scorer.shares_prompts, scorer.why_not
    assert scorer.why_not is None
    truth = plain(make(SHARING[name](), attention=attention), wanted, temperature)
    scored = scorer.score(wanted, temperature=temperature)
    assert scored.values.dtype == np.float32
    assert [part.size for part in scored.completions()] == [c.size for group in wanted for c in group.completions]
    assert difference(scored.values, truth) <= BOUND


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", SHARING)
@pytest.mark.usefixtures("always")
def test_equal_to_the_plain_forward(name, attention):
    if attention == "sdpa" and name in EAGER_ONLY:
        pytest.skip(f"transformers' sdpa leaves out {name}'s soft-cap")
    agrees(name, RAGGED, attention=attention)


@pytest.mark.parametrize("name", SHARING)
@pytest.mark.usefixtures("never")
def test_rows_of_their_own_in_one_forward_are_equal_too(name):
    agrees(name, RAGGED)


@pytest.mark.parametrize("name", SHARING)
def test_the_cost_model_changes_no_value(name):
    agrees(name, RAGGED)


@pytest.mark.parametrize("temperature", [0.5, 1.7])
@pytest.mark.parametrize("name", SHARING)
@pytest.mark.usefixtures("always")
def test_temperature_divides_the_final_logits(name, temperature):
    agrees(name, RAGGED, temperature=temperature)


@pytest.mark.parametrize("name", SHARING)
def test_log_probabilities_are_large_enough_for_mistakes_to_show(name):
    truth = plain(make(SHARING[name]()), RAGGED)
    assert 10 <= -truth.min() <= 40
    assert np.ptp(truth) > 6


@pytest.mark.parametrize("name", ["llama", "mistral-sliding", "gemma2"])
@pytest.mark.usefixtures("always")
def test_group_sizes_from_1_to_16(name):
    sizes = [(17 + size, [1 + (7 * k + size) % 23 for k in range(size)]) for size in range(1, 17)]
    agrees(name, groups(sizes))


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@pytest.mark.usefixtures("always")
def test_any_budget_gives_the_same_values(name):
    """Groups that are cut, groups that share a forward, rows that are larger than the budget."""
    for budget in (8, 40, 75, 130):
        agrees(name, RAGGED, max_batch_tokens=budget, chunk_size=7)


@pytest.mark.parametrize("name", ["llama", "qwen3-sliding"])
@pytest.mark.usefixtures("always")
def test_the_same_prompt_in_several_groups(name):
    first, other = groups([(40, [9, 3, 14]), (25, [6, 6])])
    again = Group.of(first.prompt, [ids(n, seed=50 + n) for n in (12, 1, 5)])
    same = Group.of(first.prompt, [first.completions[0]])
    agrees(name, [first, other, again, same])
    scorer = Scorer(make(SHARING[name]()))
    parts = scorer.score([first, other, again, same]).completions()
    assert difference(parts[-1], parts[0]) <= BOUND


@pytest.mark.usefixtures("always")
def test_empty_completions():
    agrees("llama", groups([(9, [0]), (12, [0, 3, 0]), (5, [0, 0]), (8, [2])]))
    assert Scorer(make(SHARING["llama"]())).score(groups([(9, [0, 0])])).values.size == 0


@pytest.mark.parametrize("name", SHARING)
@pytest.mark.usefixtures("always")
def test_bfloat16_errs_no_more_than_the_plain_forward_in_bfloat16(name):
    """Packed or not, each layer rounds its results to 8 bits; only the order of sums within a reduction differs.

    So against the truth, the same bf16 weights in fp32, the packed row must err as the plain forward in bf16 does:
    by no more than a quarter above it in the root mean square, and twice as much at the worst token of a few hundred.
    """
    wanted = groups([(23, [9, 17, 1, 17]), (61, [20] * 8), (30, [40, 33])])
    half = make(SHARING[name](), scale=3.0).to(torch.bfloat16)
    truth_model = make(SHARING[name](), scale=3.0)
    truth_model.load_state_dict(half.state_dict())
    truth = plain(truth_model, wanted)
    theirs = plain(half, wanted) - truth
    scorer = Scorer(half)
    assert scorer.shares_prompts, scorer.why_not
    ours = scorer.score(wanted).values - truth
    assert np.sqrt(np.mean(ours**2)) <= 1.25 * np.sqrt(np.mean(theirs**2))
    assert np.abs(ours).max() <= 2 * np.abs(theirs).max()


@pytest.mark.usefixtures("always")
def test_bfloat16_of_a_deep_model_with_unlikely_tokens_still_shares_prompts():
    """30 layers round more than 4: one token in a hundred is off by more than a quarter of a nat, either way."""
    config = SHARING["smollm2"]()
    config.num_hidden_layers = 30
    half = make(config, scale=5.0, spread=6.0).to(torch.bfloat16)
    wanted = groups([(23, [9, 17, 1, 17]), (61, [20] * 8)])
    scorer = Scorer(half)
    assert scorer.shares_prompts, scorer.why_not
    apart = np.abs(scorer.score(wanted).values - plain(half, wanted))
    assert apart.max() > 0.25  # else this shows nothing


@pytest.mark.parametrize("name", ROWS)
def test_what_cannot_share_is_scored_in_rows_and_says_why(name):
    config, word = ROWS[name]
    scorer = Scorer(make(config(), scale=2.0))
    assert not scorer.shares_prompts
    assert scorer.why_not
    assert word in scorer.why_not
    truth = plain(make(config(), scale=2.0), RAGGED, 0.7)
    assert difference(scorer.score(RAGGED, temperature=0.7).values, truth) <= BOUND


def test_plain_rows_on_request():
    scorer = Scorer(make(SHARING["llama"]()), share_prompts=False)
    assert not scorer.shares_prompts
    assert "asked for" in (scorer.why_not or "")
    assert difference(scorer.score(RAGGED).values, plain(make(SHARING["llama"]()), RAGGED)) <= BOUND


@pytest.mark.parametrize("keyword", ["s_aux", "position_bias", "something_new"])
def test_an_attention_keyword_that_is_not_known_raises(keyword):
    states = torch.randn(1, 2, 5, 8)
    layout = _layout()
    module = torch.nn.Module()
    packed_attention(module, states, states, states, layout, **{keyword: None})
    with pytest.raises(UnsupportedAttentionError, match=keyword):
        packed_attention(module, states, states, states, layout, **{keyword: torch.ones(2)})


def test_attention_that_looks_ahead_raises():
    states = torch.randn(1, 2, 5, 8)
    with pytest.raises(UnsupportedAttentionError, match="causal"):
        packed_attention(torch.nn.Module(), states, states, states, _layout(), is_causal=False)


def _layout() -> Layout:
    from grpo_scoring.pieces import forwards

    (pieces,) = forwards(groups([(3, [2, 2])]), 100, lambda sizes: True)
    return Layout.of(pieces)


# Controls: each omission, applied to a Scorer that is right, must be far outside the bound.

Mangle = Callable[[pytest.MonkeyPatch], None]


def _drop(*names: str) -> Mangle:
    def mangle(patch: pytest.MonkeyPatch) -> None:
        right = grpo_scoring.prefix_attention.packed_attention

        def wrong(*args: Any, **kwargs: Any) -> Any:
            return right(*args, **{name: value for name, value in kwargs.items() if name not in names})

        patch.setattr(grpo_scoring.prefix_attention, "packed_attention", wrong)
        patch.setattr(grpo_scoring.prefix_attention, "_is_sliding", lambda module: False)

    return mangle


def _layout_with(change: Callable[[Layout], Layout]) -> Mangle:
    def mangle(patch: pytest.MonkeyPatch) -> None:
        class Wrong:
            @staticmethod
            def of(*args: Any, **kwargs: Any) -> Layout:
                return change(Layout.of(*args, **kwargs))

        patch.setattr(grpo_scoring.scorer, "Layout", Wrong)

    return mangle


def _shifted(layout: Layout) -> Layout:
    late = torch.arange(layout.positions.shape[1]) > 40
    return replace(layout, positions=layout.positions + late)


def _not_restarted(layout: Layout) -> Layout:
    return replace(layout, positions=torch.arange(layout.positions.shape[1])[None])


def _neighbours_state(layout: Layout) -> Layout:
    """The first token of the second completion, predicted from the end of the first."""
    predicting = layout.predicting.clone()
    place = int((predicting == predicting[0]).nonzero()[1])
    predicting[place] = predicting[place - 1]
    return replace(layout, predicting=predicting)


def _no_transform(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogitTransform, "__call__", lambda self, logits: logits)


CONTROLS: dict[str, tuple[str, Mangle]] = {
    "sliding window dropped, mistral": ("mistral-sliding", _drop("sliding_window")),
    "sliding window dropped, qwen3": ("qwen3-sliding", _drop("sliding_window")),
    "sliding window dropped, gemma3": ("gemma3", _drop("sliding_window")),
    "attention's soft-cap dropped, gemma2": ("gemma2", _drop("softcap")),
    "attention's scaling dropped, granite": ("granite", _drop("scaling")),
    "final soft-cap dropped, gemma2": ("gemma2", _no_transform),
    "logit scale dropped, cohere": ("cohere", _no_transform),
    "logit scaling dropped, granite": ("granite", _no_transform),
    "positions off by one after token 40, llama": ("llama", _layout_with(_shifted)),
    "positions not restarted, llama": ("llama", _layout_with(_not_restarted)),
    "first state from the completion before, llama": ("llama", _layout_with(_neighbours_state)),
}


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.usefixtures("always")
def test_an_omission_would_be_seen(control, monkeypatch):
    name, mangle = CONTROLS[control]
    scorer = Scorer(make(SHARING[name]()))
    truth = plain(make(SHARING[name]()), RAGGED)
    assert difference(scorer.score(RAGGED).values, truth) <= BOUND
    mangle(monkeypatch)
    assert difference(scorer.score(RAGGED).values, truth) >= SEEN


@pytest.mark.parametrize("control", [name for name, (_, mangle) in CONTROLS.items() if mangle is not _no_transform])
def test_the_scorers_own_check_sees_it_and_falls_back_to_rows(control, monkeypatch):
    name, mangle = CONTROLS[control]
    mangle(monkeypatch)
    scorer = Scorer(make(SHARING[name]()))
    assert not scorer.shares_prompts
    assert "differ" in (scorer.why_not or "")
    assert difference(scorer.score(RAGGED).values, plain(make(SHARING[name]()), RAGGED)) <= BOUND
