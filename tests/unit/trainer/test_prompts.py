from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from grpo_trainer.prompts import (
    as_messages,
    cut_after_eos,
    decode_completions,
    eos_token_ids,
    is_truncated,
    left_pad,
    pad_token_id,
    right_pad,
    tokenize,
)

from tests.unit.trainer.tiny_model import make_tokenizer


def test_text_becomes_one_user_message_after_the_system_prompt() -> None:
    assert as_messages("hi", None) == [{"role": "user", "content": "hi"}]
    assert as_messages("hi", "be kind")[0] == {"role": "system", "content": "be kind"}
    own = [{"role": "system", "content": "own"}, {"role": "user", "content": "hi"}]
    assert as_messages(own, "be kind") == own
    user = [{"role": "user", "content": "hi"}]
    assert len(as_messages(user, "be kind")) == 2
    assert len(user) == 1, "the dataset's own list stays as it is"


def test_tokenize_equals_trls() -> None:
    from trl import GRPOTrainer

    tokenizer = make_tokenizer(chat_template=True)
    trainer = SimpleNamespace(
        processing_class=tokenizer,
        environment_factories=None,
        tools=None,
        chat_template=None,
        chat_template_kwargs={},
        _is_vlm=False,
    )
    messages = [as_messages("2+2?", "count"), as_messages("hello there", None)]
    theirs, *_ = GRPOTrainer._tokenize_prompts(trainer, messages)
    ours = tokenize(messages, tokenizer)
    assert ours == [list(ids) for ids in theirs]
    assert tokenizer.decode(ours[1]) == "<|im_start|>user\nhello there<|im_end|>\n<|im_start|>assistant\n"
    plain, *_ = GRPOTrainer._tokenize_prompts(trainer, ["ab", "c"])
    assert tokenize(["ab", "c"], tokenizer) == plain
    assert tokenize([], tokenizer) == []


def test_padding_on_either_side() -> None:
    ids, mask = left_pad([[5, 6], [7]], 0)
    assert ids.tolist() == [[5, 6], [0, 7]]
    assert mask.tolist() == [[1, 1], [0, 1]]
    ids, mask = right_pad([[5, 6], [], [7]], 9)
    assert ids.tolist() == [[5, 6], [9, 9], [7, 9]]
    assert mask.tolist() == [[1, 1], [0, 0], [1, 0]]
    assert ids.dtype == mask.dtype == torch.int64
    assert left_pad([], 0)[0].shape == (0, 0)


def test_pad_token_falls_back_to_the_end_of_sequence() -> None:
    assert pad_token_id(SimpleNamespace(pad_token_id=0, eos_token_id=2)) == 0
    assert pad_token_id(SimpleNamespace(pad_token_id=None, eos_token_id=2)) == 2
    with pytest.raises(ValueError, match="neither a padding token"):
        pad_token_id(SimpleNamespace(pad_token_id=None, eos_token_id=None))


@pytest.mark.parametrize(
    ("model", "own", "expected"), [(None, 2, [2]), (3, 2, [2, 3]), ([3, 2], 2, [2, 3]), (3, None, [3])]
)
def test_all_end_tokens_of_model_and_tokenizer(model: object, own: int | None, expected: list[int]) -> None:
    assert eos_token_ids(SimpleNamespace(eos_token_id=model), SimpleNamespace(eos_token_id=own)) == expected


def test_completions_end_with_their_first_end_token() -> None:
    generated = torch.tensor([[5, 2, 0, 0], [5, 6, 7, 8], [3, 2, 5, 2], [2, 2, 2, 2]])
    cut = cut_after_eos(generated, [2, 3])
    assert cut == [[5, 2], [5, 6, 7, 8], [3], [2]]
    assert [is_truncated(ids, [2, 3]) for ids in cut] == [False, True, False, False]
    assert is_truncated([], [2])


def test_completions_have_the_form_of_their_prompt() -> None:
    tokenizer = make_tokenizer()
    ids = [[*tokenizer("ab")["input_ids"], 2], tokenizer("c")["input_ids"]]
    assert decode_completions(tokenizer, ids, ["p", "q"]) == ["ab", "c"]
    messages = [{"role": "user", "content": "p"}]
    assert decode_completions(tokenizer, ids[:1], [messages]) == [[{"role": "assistant", "content": "ab"}]]
