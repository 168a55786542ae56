"""One rank that trains several small jobs one after the other: imports take longer than the jobs.

`python -m tests.integration.trainer.variants_rank FILE`, with torchrun's variables set; FILE holds a list of variants:
{"name", "spec", "output", "completions": {prompt text: [[ids, …], …]} or null, "url", "gather", "fail_in"}.

With completions given, nothing is generated, and rows are not shuffled: so other numbers of ranks, and TRL, see the
same batches. All else is the trainer's own.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from grpo_api import env
from grpo_trainer import distributed, train
from grpo_trainer.config import Job, load, parse_spec
from grpo_trainer.distributed import Communicator
from grpo_trainer.generation import Generator
from grpo_trainer.loop import Loop
from grpo_trainer.main import set_up_logging
from grpo_trainer.progress import ProgressBoard
from transformers import AutoTokenizer


def main() -> None:
    variants: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
    set_up_logging(int(os.environ["RANK"]))
    communicator: list[Communicator] = []

    def connect_once(*args: Any, **kwargs: Any) -> Communicator:
        if not communicator:
            communicator.append(distributed.connect(*args, **kwargs))
        return communicator[0]

    train.connect = connect_once
    close = Communicator.close
    Communicator.close = lambda self: self.barrier()  # type: ignore[method-assign]
    shuffled, generate = Loop._shuffled, Generator.generate
    for variant in variants:
        os.environ[env.DS3_GATHER_FOR_GENERATION] = variant.get("gather") or ""
        os.environ[env.REF_MODEL_URL] = variant.get("url") or ""
        os.environ[env.GRPO_OUTPUT_DIR] = variant["output"]
        Loop._shuffled, Generator.generate = shuffled, generate  # type: ignore[method-assign]
        if variant.get("completions"):
            inject(variant["completions"], variant["spec"]["model"]["name"])
        settings = load(Job(variant["name"], parse_spec(variant["spec"])), os.environ)
        termination = train.train(settings, ProgressBoard(0))
        assert termination.reason == "Succeeded"
        print(f"variant {variant['name']} done", flush=True)
    close(communicator[0])
    sys.stdout.flush()
    os._exit(0)


def inject(completions: dict[str, list[list[int]]], model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)

    def given(self: Generator, prompts: list[list[int]], seed: int) -> list[list[int]]:
        seen: dict[str, int] = defaultdict(int)
        rows = []
        for ids in prompts:
            text = tokenizer.decode(ids)
            rows.append(list(completions[text][seen[text] % len(completions[text])]))
            seen[text] += 1
        return rows

    Generator.generate = given  # type: ignore[method-assign]
    Loop._shuffled = lambda self, rows, number: torch.arange(rows)  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
