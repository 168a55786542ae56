"""Which models can be spread over how many devices."""

import pytest
import transformers
from grpo_refserver.settings import ConfigurationError
from grpo_refserver.tensor_parallel.plan import check_plan

SIZES = {"vocab_size": 321, "hidden_size": 64, "intermediate_size": 129, "num_hidden_layers": 2}


def llama(heads: int, kv_heads: int, **fields: int) -> transformers.LlamaConfig:
    return transformers.LlamaConfig(**SIZES | {"num_attention_heads": heads, "num_key_value_heads": kv_heads} | fields)


def test_heads_must_be_divisible_and_the_field_is_named():
    check_plan(llama(4, 2), 2)  # vocabulary and intermediate size are odd: the last part is shorter
    with pytest.raises(ConfigurationError, match=r"num_key_value_heads of the model is 2,.*by 4: use 1 or 2$"):
        check_plan(llama(4, 2), 4)
    with pytest.raises(ConfigurationError, match=r"spec.reference.tensorParallelSize\): num_attention_heads"):
        check_plan(llama(9, 3, hidden_size=72), 2)
    check_plan(llama(9, 3, hidden_size=72), 3)


def test_a_plan_that_leaves_attention_whole_needs_no_divisible_heads():
    sizes = SIZES | {"num_attention_heads": 3, "num_key_value_heads": 3, "hidden_size": 48}
    check_plan(transformers.Phi3Config(**sizes, pad_token_id=0), 2)


def test_a_family_without_a_plan_is_refused():
    with pytest.raises(ConfigurationError, match=r"no tensor-parallel plan .* for model_type gpt2"):
        check_plan(transformers.GPT2Config(), 2)


def test_a_size_too_small_for_a_part_each_is_refused():
    with pytest.raises(ConfigurationError, match="vocab_size of the model is 9, too few"):
        check_plan(llama(8, 8, vocab_size=9), 8)
