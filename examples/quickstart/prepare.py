"""Make the quickstart's model and prompts from a seed: nothing is downloaded.

usage: prepare.py FOLDER [--seed N]

Task: sort three digits upwards, `725>` → `257`. 1000 prompts: 800 to train on, 200 held out from everything.
The model (Qwen2, 108k parameters, one token per byte) is warmed up by a careless teacher, who is right with
probability 0.35 and else sorts downwards. So it starts by sampling the right answer a third of the time, and almost
never gives it greedily; GRPO turns that habit into the rule. It does not teach sorting from nothing.

Writes FOLDER/model (a transformers folder), FOLDER/train.jsonl and FOLDER/heldout.jsonl.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

PAD, EOS = "<|pad|>", "<|im_end|>"
HELD_OUT = 200
RIGHT = 0.35
STEPS, BATCH, LEARNING_RATE, RAMP = 300, 128, 3e-3, 20

Item = tuple[str, str]
"""A prompt and its answer, as text."""


def make_items() -> tuple[list[Item], list[Item]]:
    """Return (items to train on, held-out items); the split is the same for every seed."""
    items = [(f"{n:03d}>", "".join(sorted(f"{n:03d}"))) for n in range(1000)]
    random.Random(0).shuffle(items)
    return items[HELD_OUT:], items[:HELD_OUT]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer without merges: one token per byte, no BOS."""
    vocabulary = [PAD, "<|im_start|>", EOS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        bos_token=None,
        additional_special_tokens=["<|im_start|>"],
        padding_side="left",
    )


def make_model(seed: int) -> Qwen2ForCausalLM:
    """Return the untrained model. AutoTokenizer reloads the tokenizer with one token more: the vocabulary has room."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=264,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    return Qwen2ForCausalLM(config)


def warm_up(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, items: list[Item], seed: int) -> float:
    """Train on the careless teacher's answers (cross-entropy on answer and EOS); return the last loss."""
    rng = random.Random(seed + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    prompts = {prompt: tokenizer.encode(prompt, add_special_tokens=False) for prompt, _ in items}
    loss = torch.tensor(0.0)
    model.train()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1, (step + 1) / RAMP) * (1 - step / STEPS)
        rows, labels = [], []
        for prompt, answer in rng.choices(items, k=BATCH):
            told = answer if rng.random() < RIGHT else answer[::-1]
            completion = [*tokenizer.encode(told, add_special_tokens=False), tokenizer.eos_token_id]
            rows.append(prompts[prompt] + completion)
            labels.append([-100] * len(prompts[prompt]) + completion)
        # All rows are equally long: four prompt tokens, three digits, EOS.
        loss = model(input_ids=torch.tensor(rows), labels=torch.tensor(labels)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return float(loss.detach())


def write_items(path: Path, items: list[Item]) -> None:
    """Write prompts and answers as one JSON object a line."""
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in items))


def main() -> None:
    """Make everything in the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and warm-up (default 0)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()
    train, held_out = make_items()
    tokenizer, model = make_tokenizer(), make_model(options.seed)
    loss = warm_up(model, tokenizer, train, options.seed)
    # Said explicitly, since transformers' defaults would cut the distribution that is sampled from.
    model.generation_config.update(do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    model.eval().save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    for path in (folder / "model").iterdir():
        path.chmod(0o644)  # safetensors lets only the owner read; in a volume the pods are another user
    write_items(folder / "train.jsonl", train)
    write_items(folder / "heldout.jsonl", held_out)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"made {folder}/model: {parameters:,} parameters, warm-up loss {loss:.3f}, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
