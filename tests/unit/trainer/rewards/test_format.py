from __future__ import annotations

import pytest
from grpo_trainer.rewards.format import think_answer_format

GOOD = "<think>two and two\nare four</think>\n<answer>4</answer>"


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (GOOD, 1.0),
        (f"\n {GOOD} \n", 1.0),
        ("<think></think><answer>4</answer>", 1.0),
        ("<think>a</think><answer> </answer>", 0.0),
        ("<think>a</think>4", 0.0),
        ("<answer>4</answer>", 0.0),
        (f"Sure. {GOOD}", 0.0),
        (f"{GOOD} Done.", 0.0),
        (f"<think>a{GOOD}", 0.0),
        (f"{GOOD}<answer>5</answer>", 0.0),
        ("<answer>4</answer><think>a</think>", 0.0),
        ("", 0.0),
    ],
)
def test_format(text: str, reward: float) -> None:
    assert think_answer_format([text]) == [reward]
    assert think_answer_format(completions=[[{"role": "assistant", "content": text}]], prompts=["x"]) == [reward]
