import copy
import inspect

import pytest
import torch
import transformers
from grpo_scoring.head import LogitTransform, head_logprobs, patch_head
from grpo_scoring.logprobs import enable_scoring
from torch import nn


def states_and_targets(model, count: int):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(count, 64, generator=generator, requires_grad=True)
    return hidden, torch.randint(0, model.config.vocab_size, (count,), generator=generator)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_logprobs_entropy_and_gradients_equal_those_of_full_logits(family_model, temperature):
    hidden, targets = states_and_targets(family_model, 37)
    transform = LogitTransform.of(family_model.config)
    full = (transform(family_model.get_output_embeddings()(hidden).float()) / temperature).log_softmax(-1)
    expected = full.gather(1, targets[:, None])[:, 0]
    weight = family_model.get_output_embeddings().weight
    gradients = torch.autograd.grad(expected.square().sum(), [hidden, weight])

    for chunk_size, recompute in [(8, True), (8, False), (1, True), (64, True)]:
        output = head_logprobs(
            family_model,
            hidden,
            targets,
            temperature=temperature,
            chunk_size=chunk_size,
            recompute=recompute,
            entropy=True,
        )
        assert output.logprobs.dtype == torch.float32
        torch.testing.assert_close(output.logprobs, expected, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(output.entropy, -(full.exp() * full).sum(-1).detach(), atol=2e-6, rtol=1e-6)
        assert not output.entropy.requires_grad
        ours = torch.autograd.grad(output.logprobs.square().sum(), [hidden, weight])
        for mine, theirs in zip(ours, gradients, strict=True):
            assert (mine - theirs).norm() <= 1e-6 * theirs.norm()


def test_the_module_is_called_once_and_never_holds_full_logits(llama):
    patch_head(llama)
    head = llama.get_output_embeddings()
    calls, widest = [], 0
    head.register_forward_pre_hook(lambda *_: calls.append(1))
    original = nn.functional.linear

    def watched(inputs, *rest):
        nonlocal widest
        widest = max(widest, inputs.shape[0])
        return original(inputs, *rest)

    hidden, targets = states_and_targets(llama, 50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.functional, "linear", watched)
        head_logprobs(llama, hidden, targets, chunk_size=16).logprobs.sum().backward()
    assert len(calls) == 1, "ZeRO-3 gathers per module call"
    assert widest == 16


def test_patching_leaves_generation_and_names_alone(llama):
    ids = torch.arange(3, 13)[None]
    mask = torch.ones_like(ids)
    names = [name for name, _ in llama.named_parameters()]
    logits = llama(ids).logits
    tokens = llama.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False)
    patch_head(llama)
    patch_head(llama)
    assert torch.equal(llama(ids).logits, logits)
    assert torch.equal(llama.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False), tokens)
    assert [name for name, _ in llama.named_parameters()] == names


def test_a_copy_of_a_scoring_model_computes_with_its_own_weights(llama):
    ids = torch.arange(3, 13)[None]
    enable_scoring(llama)
    asked = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_length": 4}
    before = llama(**asked).logprobs
    other = copy.deepcopy(llama)
    with torch.no_grad():
        other.get_output_embeddings().weight.mul_(0.5)
        other.get_input_embeddings().weight.mul_(0.5)
    assert not torch.allclose(other(**asked).logprobs, before, atol=1e-3)
    assert not torch.allclose(other(ids).logits, llama(ids).logits, atol=1e-3)
    assert torch.equal(llama(**asked).logprobs, before)
    assert inspect.signature(llama.forward) == inspect.signature(type(llama).forward.__get__(llama))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (transformers.LlamaConfig(), LogitTransform()),
        (transformers.CohereConfig(logit_scale=0.25), LogitTransform(0.25)),
        (transformers.GraniteConfig(logits_scaling=4.0), LogitTransform(0.25)),
        (transformers.Gemma2Config(final_logit_softcapping=30.0), LogitTransform(1.0, 30.0)),
        (transformers.Gemma3TextConfig(final_logit_softcapping=None), LogitTransform()),
        (transformers.FalconH1Config(lm_head_multiplier=2.0), LogitTransform(2.0)),
    ],
)
def test_logit_transform_reads_the_config(config, expected):
    assert LogitTransform.of(config) == expected


def test_what_cannot_be_scored_is_refused(llama):
    hidden, targets = states_and_targets(llama, 4)
    with pytest.raises(ValueError, match="no targets"):
        head_logprobs(llama, hidden[:0], targets[:0])
    with pytest.raises(ValueError, match="temperature must be > 0"):
        head_logprobs(llama, hidden, targets, temperature=0.0)
    with pytest.raises(ValueError, match="no output head"):
        patch_head(llama.model)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk_size", [1, 7, 5000])
def test_without_gradient_tiles_give_what_whole_rows_give(bias, chunk_size):
    """More positions than a tile's, a vocabulary that tiles do not divide, and one position of it at a time."""
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 101, bias=bias)
    hidden, targets = torch.randn(2100, 8), torch.randint(0, 101, (2100,))

    class Model:
        config = transformers.LlamaConfig()

        def get_output_embeddings(self):
            return head

    expected = (head(hidden) / 0.7).log_softmax(-1).gather(1, targets[:, None])[:, 0].detach()
    with torch.no_grad():
        found = head_logprobs(Model(), hidden, targets, temperature=0.7, chunk_size=chunk_size).logprobs
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
