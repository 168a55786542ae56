"""Packed rows with gradients: what training will use."""

import pytest
import torch
from grpo_scoring.layout import Layout
from grpo_scoring.packed import packed_logprobs
from grpo_scoring.pieces import forwards
from grpo_scoring.prefix_attention import install

SHAPES = [(23, [9, 17, 1, 17]), (7, [5, 20, 11]), (30, [8, 8])]


@pytest.mark.parametrize("family", ["llama", "qwen2-tied", "gemma2", "mistral-sliding"])
@pytest.mark.parametrize("checkpointing", [None, False, True], ids=["kept", "non-reentrant", "reentrant"])
def test_gradients_equal_those_of_plain_rows(make_model, random_groups, family, checkpointing):
    model = make_model(family).train()
    groups = random_groups(SHAPES)
    rows = [(group.prompt, completion) for group in groups for completion in group.completions]
    plain = []
    for prompt, completion in rows:
        row = torch.tensor([*prompt.tolist(), *completion.tolist()])
        logprobs = (model(input_ids=row[None]).logits[0] / 0.7).log_softmax(-1)
        plain.append(logprobs[:-1].gather(1, row[1:, None])[:, 0][prompt.size - 1 :])
    weights = torch.randn(sum(part.numel() for part in plain), generator=torch.Generator().manual_seed(5))
    (torch.cat(plain) * weights).sum().backward()
    theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)

    install(model)
    if checkpointing is not None:
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
        if checkpointing:
            model.enable_input_require_grads()
    (pieces,) = forwards(groups, 1000, lambda sizes: True)
    # Another row in between: a layout kept outside the call would be the wrong one when a layer runs again.
    layout = Layout.of(pieces, merged=True)
    scored = packed_logprobs(model, layout, temperature=0.7, chunk_size=16).logprobs
    (other,) = forwards(random_groups([(4, [3, 3])]), 1000, lambda sizes: True)
    packed_logprobs(model, Layout.of(other), chunk_size=16)

    expected = torch.empty_like(scored)
    order = [start for piece in pieces for start in piece.starts]
    by_start = {}
    start = 0
    for part, (_, completion) in zip(plain, rows, strict=True):
        by_start[start] = (part.detach(), weights[start : start + completion.size])
        start += completion.size
    expected = torch.cat([by_start[start][0] for start in order])
    torch.testing.assert_close(scored.detach(), expected, atol=5e-6, rtol=5e-6)
    (scored * torch.cat([by_start[start][1] for start in order])).sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad - theirs[name]).norm() <= 1e-5 * theirs[name].norm() + 1e-6, name
