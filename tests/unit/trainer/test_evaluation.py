from __future__ import annotations

from pathlib import Path

import torch
from grpo_trainer.evaluation import Evaluator
from grpo_trainer.prompts import Prompt

from tests.unit.trainer.tiny_model import save_tiny_model


def test_greedy_does_not_depend_on_batches_and_padding(tmp_path: Path) -> None:
    """The same completions one by one without padding, by plain argmax."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = save_tiny_model(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [Prompt(i, text, tokenizer(text)["input_ids"], {}) for i, text in enumerate(("hello", "a", "bcd"))]
    expected = []
    for prompt in prompts:
        ids = list(prompt.prompt_ids)
        for _ in range(6):
            with torch.no_grad():
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == tokenizer.eos_token_id:
                break
        expected.append(ids[len(prompt.prompt_ids) :])
    evaluator = Evaluator(model, tokenizer, prompts, None, max_completion_length=6, batch_size=2)  # type: ignore[arg-type]
    assert evaluator.generate(1, do_sample=False) == expected
