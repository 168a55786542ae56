from __future__ import annotations

from grpo_trainer.rewards.text import text_of


def test_text_of_all_forms() -> None:
    assert text_of("a") == "a"
    assert text_of([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]) == "ab"
    assert text_of([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]) == "a"
    assert text_of([{"role": "assistant", "content": None}]) == ""
