import pytest
import torch
from grpo_scoring.self_check import check_scoring


def test_every_family_agrees_with_its_own_forward(family_model):
    assert check_scoring(family_model) < 1e-5
    assert check_scoring(family_model.to(torch.bfloat16)) < 0.25


def test_an_unknown_logit_transform_is_found(make_model):
    model = make_model("cohere")
    model.logit_scale = 0.7  # what the forward uses; the config still says 0.3
    with pytest.raises(ValueError, match="cannot be scored"):
        check_scoring(model)


def test_broken_weights_are_found(llama):
    with torch.no_grad():
        llama.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="weights are not finite"):
        check_scoring(llama)
