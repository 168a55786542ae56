"""Packed rows: ids, positions, and which state predicts what."""

import numpy as np
import torch
from grpo_scoring.layout import Layout, Span
from grpo_scoring.pieces import Piece


def piece(prompt, completions, *, shared=True) -> Piece:
    return Piece(np.array(prompt), tuple(map(np.array, completions)), tuple(range(len(completions))), shared)


def test_a_shared_prompt_comes_once_and_positions_restart_behind_it():
    layout = Layout.of([piece([10, 11, 12], [[20, 21, 22], [30], [40, 41]])])
    assert layout.ids.tolist() == [[10, 11, 12, 20, 21, 40]]
    assert layout.positions.tolist() == [[0, 1, 2, 3, 4, 3]]
    assert layout.targets.tolist() == [20, 21, 22, 30, 40, 41]
    assert layout.predicting.tolist() == [2, 3, 4, 2, 2, 5]
    (span,) = layout.spans
    assert (span.start, span.prefix, span.branches, span.end) == (0, 3, (2, 1), 6)


def test_one_completion_is_a_plain_row():
    layout = Layout.of([piece([10, 11], [[20, 21]])])
    assert layout.ids.tolist() == [[10, 11, 20]]
    assert layout.positions.tolist() == [[0, 1, 2]]
    assert layout.predicting.tolist() == [1, 2]
    assert (layout.spans[0].prefix, layout.spans[0].branches) == (3, ())


def test_a_prompt_that_is_not_shared_comes_with_every_completion():
    layout = Layout.of([piece([1], [[2]]), piece([10, 11], [[20, 21], [30]], shared=False)])
    assert layout.ids.tolist() == [[1, 10, 11, 20, 10, 11]]
    assert layout.positions.tolist() == [[0, 0, 1, 2, 0, 1]]
    assert layout.predicting.tolist() == [0, 2, 3, 5]
    assert (layout.spans[1].start, layout.spans[1].prefix, layout.spans[1].branches) == (1, 0, (3, 2))


def test_folding_and_unfolding_branches_loses_nothing():
    states = torch.arange(2 * 12.0).reshape(1, 2, 12, 1)
    for branches in [(3, 3), (4, 1, 2), (1,)]:
        span = Span(2, 3, branches)
        folded = span.fold(states)
        assert folded.shape == (len(branches), 2, max(branches), 1)
        torch.testing.assert_close(span.unfold(folded), states[:, :, span.first_branch : span.end])


def test_masks_show_the_prefix_and_the_own_past_within_the_window():
    span = Span(0, 3, (2, 2))
    assert span.prefix_mask(None) is None
    assert span.branch_mask(None).tolist() == [[True, True, True, True, False], [True] * 5]
    assert span.branch_mask(2).tolist() == [[False, False, True, True, False], [False, False, False, True, True]]
    assert span.prefix_mask(2).tolist() == [[True, False, False], [True, True, False], [False, True, True]]
    assert not span.is_windowed(5)
    assert span.is_windowed(4)
    assert Span(0, 0, (4, 4)).branch_mask(None) is None
