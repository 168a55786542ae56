import pytest
import torch
from grpo_scoring.groups import Group
from grpo_scoring.logprobs import completion_logprobs, enable_scoring, row_logprobs


def close(ours, theirs) -> None:
    """1e-6, relative to the larger of 1 and the log-probability."""
    torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(theirs), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_groups_equal_full_logits(family_model, ragged, plain, temperature):
    scored = completion_logprobs(family_model, ragged, temperature=temperature, max_batch_tokens=64, chunk_size=7)
    expected = plain(family_model, ragged, temperature)
    assert [len(part) for part in scored.completions()] == [len(part) for part in expected]
    close(scored.values, torch.cat(expected))


def test_rows_equal_groups(family_model, ragged, padded):
    """The trainer's padded batch and the reference's rows must agree, or KL is not 0 at step 0."""
    ids, mask = padded(ragged, 33, 21)
    with torch.no_grad():
        rows = row_logprobs(family_model, ids, mask, 21, temperature=0.7, chunk_size=8)
    remote = completion_logprobs(family_model, ragged, temperature=0.7)
    assert rows.entropy is None
    close(rows.logprobs[mask[:, -21:].bool()], remote.values)
    assert not rows.logprobs[~mask[:, -21:].bool()].any()


def test_row_gradients_equal_those_of_full_logits(family_model, ragged, padded):
    ids, mask = padded(ragged, 33, 21)
    real = mask[:, -21:].bool()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    logits = family_model(input_ids=ids, attention_mask=mask, position_ids=positions).logits[:, -22:-1]
    expected = (logits / 0.7).log_softmax(-1).gather(-1, ids[:, -21:, None])[..., 0][real]
    expected.square().mean().backward()
    theirs = {name: parameter.grad for name, parameter in family_model.named_parameters()}

    for checkpointing in (False, True):
        family_model.zero_grad(set_to_none=True)
        if checkpointing:
            family_model.train()
            family_model.gradient_checkpointing_enable({"use_reentrant": False})
        output = row_logprobs(family_model, ids, mask, 21, temperature=0.7, chunk_size=8, entropy=True)
        close(output.logprobs[real].detach(), expected.detach())
        assert bool((output.entropy[real] > 0).all())
        output.logprobs[real].square().mean().backward()
        for name, parameter in family_model.named_parameters():
            assert (parameter.grad - theirs[name]).norm() <= 5e-6 * theirs[name].norm() + 1e-7, name
        if family_model.config.model_type == "gpt2":
            break  # dropout is on in train mode


def test_a_batch_without_completion_tokens_is_zero_with_finite_gradients(llama):
    ids = torch.randint(3, 320, (2, 12))
    mask = torch.ones_like(ids)
    mask[:, -4:] = 0
    mask[1] = 0  # a row that is all padding
    output = row_logprobs(llama, ids, mask, 4)
    assert not output.logprobs.any()
    output.logprobs.sum().backward()
    for name, parameter in llama.named_parameters():
        assert parameter.grad is not None, f"{name}: ZeRO-3 waits for its gradient on every rank"
        assert bool(parameter.grad.eq(0).all()), name


def test_enable_scoring_adds_to_the_forward_and_changes_nothing_else(llama, ragged, padded):
    ids, mask = padded(ragged, 33, 21)
    logits = llama(ids, attention_mask=mask).logits
    expected = row_logprobs(llama, ids, mask, 21, temperature=0.7)
    enable_scoring(llama)
    enable_scoring(llama)
    output = llama(input_ids=ids, attention_mask=mask, completion_length=21, temperature=0.7)
    assert torch.equal(output.logprobs, expected.logprobs)
    assert torch.equal(llama(ids, attention_mask=mask).logits, logits)
    generated = llama.generate(ids[:2], attention_mask=mask[:2], max_new_tokens=4, do_sample=False)
    assert generated.shape == (2, ids.shape[1] + 4)


def test_an_adapter_is_scored_too(llama, ragged, padded, plain):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(
        llama, peft.LoraConfig(target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    ).eval()
    ids, mask = padded(ragged, 33, 21)
    with torch.no_grad():
        rows = row_logprobs(model, ids, mask, 21)
    adapted = torch.cat(plain(model, ragged))
    close(rows.logprobs[mask[:, -21:].bool()], adapted)
    close(completion_logprobs(model, ragged).values, adapted)
    with model.disable_adapter():
        assert (adapted - torch.cat(plain(model, ragged))).abs().max() > 1e-2


def test_memory_does_not_hold_the_vocabulary(random_groups):
    """The widest tensor of a forward is far below rows x length x vocabulary."""
    import transformers
    from torch.utils._python_dispatch import TorchDispatchMode

    config = transformers.LlamaConfig(
        vocab_size=20000, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    groups = random_groups([(16, [48] * 8)])

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.shape != (20000, 32):
                self.elements = max(self.elements, result.numel())
            return result

    with Largest() as largest:
        completion_logprobs(model, groups, chunk_size=32)
    assert 0.99 * 32 * 20000 < largest.elements <= 32 * 20000


def test_what_cannot_be_scored_is_refused(llama):
    ids = torch.ones(1, 4, dtype=torch.long)
    for length in (0, 4):
        with pytest.raises(ValueError, match="completion_length must be from 1 to 3"):
            row_logprobs(llama, ids, ids, length)
    assert completion_logprobs(llama, [Group.of([1], [[]])]).values.size == 0
