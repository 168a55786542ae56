"""Attention exchanged in transformers' own place."""

import pytest
import torch
from grpo_scoring.layout import Layout
from grpo_scoring.pieces import forwards
from grpo_scoring.prefix_attention import LAYOUT, UnsupportedAttentionError, install, packed_attention


@pytest.mark.parametrize("base", ["sdpa", "eager"])
def test_calls_without_a_layout_are_what_they_were(make_model, base):
    model = make_model("gemma2" if base == "eager" else "llama")
    model.set_attn_implementation(base)
    ids = torch.randint(3, 320, (2, 20))
    mask = torch.ones_like(ids)
    mask[0, :7] = 0
    with torch.no_grad():
        before = model(input_ids=ids, attention_mask=mask).logits
        tokens = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=5, do_sample=False)
        assert install(model) == base
        assert install(model) == base, "a second time it is there already"
        assert torch.equal(before[mask.bool()], model(input_ids=ids, attention_mask=mask).logits[mask.bool()])
        assert torch.equal(
            tokens, model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=5, do_sample=False)
        )


def attend(layout, **arguments):
    query = torch.zeros(1, 2, layout.ids.shape[1], 8)
    module = torch.nn.Module()
    return packed_attention(module, query, query, query, layout, **arguments)


def test_arguments_that_would_change_attention_raise(random_groups):
    (pieces,) = forwards(random_groups([(5, [3, 4])]), 100, lambda sizes: True)
    layout = Layout.of(pieces)
    assert attend(layout, position_ids=layout.positions, output_attentions=False, use_cache=False).shape[1] == 10
    for name, value in [("s_aux", torch.zeros(2)), ("position_bias", torch.zeros(1)), ("something_new", 3)]:
        with pytest.raises(UnsupportedAttentionError, match=name):
            attend(layout, **{name: value})
    with pytest.raises(UnsupportedAttentionError, match="not causal"):
        attend(layout, is_causal=False)


def test_a_sliding_layer_without_its_window_raises(make_model, random_groups):
    model = make_model("gemma2")
    (pieces,) = forwards(random_groups([(5, [3, 4])]), 100, lambda sizes: True)
    layout = Layout.of(pieces)
    sliding = next(m for m in model.modules() if getattr(m, "sliding_window", None) and hasattr(m, "q_proj"))
    query = torch.zeros(1, 4, layout.ids.shape[1], 32)
    with pytest.raises(UnsupportedAttentionError, match="window"):
        packed_attention(sliding, query, query, query, layout)
    packed_attention(sliding, query, query, query, layout, sliding_window=12)


def test_the_layout_reaches_every_layer(llama, random_groups):
    install(llama)
    (pieces,) = forwards(random_groups([(5, [3, 4]), (4, [2])]), 100, lambda sizes: True)
    layout = Layout.of(pieces)
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    with torch.no_grad():
        llama.model(input_ids=layout.ids, position_ids=layout.positions, attention_mask=mask, **{LAYOUT: layout})
    assert len(layout.layers) == llama.config.num_hidden_layers
