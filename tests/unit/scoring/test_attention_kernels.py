"""Both kernels against attention of every row by itself."""

import pytest
import torch
from grpo_scoring.attention_kernels import masked, merged
from grpo_scoring.layout import Span

HEADS, KEY_HEADS, SIZE = 4, 2, 16


def states(tokens: int):
    generator = torch.Generator().manual_seed(1)
    return tuple(
        torch.randn(1, tokens, heads, SIZE, generator=generator).transpose(1, 2)
        for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    )


def plain(query, key, value, span: Span, *, window=None, softcap=None, scaling=None):
    """Scores, mask and softmax written out, row by row."""

    def attend(places, queries):
        q = query[0, :, places][:, queries]
        k = key[0, :, places].repeat_interleave(HEADS // KEY_HEADS, 0)
        v = value[0, :, places].repeat_interleave(HEADS // KEY_HEADS, 0)
        scores = (q @ k.transpose(1, 2)).double() * (SIZE**-0.5 if scaling is None else scaling)
        if softcap:
            scores = torch.tanh(scores / softcap) * softcap
        at = torch.arange(len(places))
        seen = at <= at[queries][:, None]
        if window:
            seen &= at > at[queries][:, None] - window
        return (scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v.double()).float().transpose(0, 1)

    prefix = list(range(span.start, span.first_branch))
    parts = [attend(prefix, slice(0, None))] if prefix else []
    start = span.first_branch
    for length in span.branches:
        parts.append(attend(prefix + list(range(start, start + length)), slice(len(prefix), None)))
        start += length
    return torch.cat(parts)[None]


SPANS = [Span(2, 7, (5, 5, 5)), Span(2, 7, (3, 1, 6)), Span(0, 20, ()), Span(1, 0, (4, 9)), Span(0, 1, (30,))]


@pytest.mark.parametrize("span", SPANS, ids=lambda span: f"{span.prefix}-{span.branches}")
@pytest.mark.parametrize("window", [None, 4, 100])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("scaling", [None, 0.5])
def test_masked(span, window, softcap, scaling):
    tensors = states(span.end + 3)
    ours = torch.cat(masked(*tensors, span, scaling=scaling, window=window, softcap=softcap), 1)
    torch.testing.assert_close(ours, plain(*tensors, span, scaling=scaling, window=window, softcap=softcap))


@pytest.mark.parametrize("span", SPANS, ids=lambda span: f"{span.prefix}-{span.branches}")
@pytest.mark.parametrize("scaling", [None, 0.5])
def test_merged(span, scaling):
    tensors = states(span.end + 3)
    ours = torch.cat(merged(*tensors, span, scaling=scaling), 1)
    torch.testing.assert_close(ours, plain(*tensors, span, scaling=scaling))


def test_merged_holds_where_one_side_has_all_the_weight():
    """Scores of several hundred: the merge must not overflow, and must follow the larger side."""
    span = Span(0, 6, (4, 4))
    query, key, value = states(span.end)
    for scale in (1.0, -1.0):
        boosted = key.clone()
        boosted[:, :, : span.prefix] *= 300 * scale
        ours = torch.cat(merged(query, boosted, value, span, scaling=None), 1)
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, plain(query, boosted, value, span), atol=1e-4, rtol=1e-4)
