"""When a prompt is computed once."""

import pytest
from grpo_scoring.group_sizes import GroupSizes
from grpo_scoring.sharing import SharingCost

SMALL = SharingCost(token=7e6, pair=2304, overhead=5e6, merged=True)  # SmolLM2-135M on a CPU
MASKED = SharingCost(token=7e6, pair=2304, overhead=5e6, merged=False)


@pytest.mark.parametrize("cost", [SMALL, MASKED])
@pytest.mark.parametrize(
    ("prompt", "completion", "count"), [(512, 128, 8), (256, 256, 8), (64, 512, 8), (1024, 64, 16)]
)
def test_sharing_pays_for_grpo_groups(cost, prompt, completion, count):
    assert cost.shares(GroupSizes.of(prompt, [completion] * count))


def test_rows_where_a_mask_would_hide_more_than_a_prompt_saves():
    assert not MASKED.shares(GroupSizes.of(2, [8192] * 4))
    assert SMALL.shares(GroupSizes.of(2, [8192] * 4))


def test_rows_where_the_calls_cost_more_than_a_token():
    assert not SharingCost(token=1e4, pair=256, overhead=5e6, merged=True).shares(GroupSizes.of(1, [2, 2]))


def test_sizes_are_read_off_the_model(llama):
    cost = SharingCost.of(llama, "cpu", merged=True)
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    assert cost.token == pytest.approx(2 * layer, rel=0.01)
    assert cost.pair == 4 * 4 * 16
