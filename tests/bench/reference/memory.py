"""Peak memory of scoring over that of the same forward without its head, in a process of its own.

usage: python -m tests.bench.reference.memory --vocabulary N --device cpu|cuda --repetitions N

The model has SmolLM2-135M's shape and random weights, with the vocabulary asked for. "Body" is our own scoring with
the head taken out: the same packed row, the same attention, the same states picked. What is compared is what each
adds at its peak to the memory at rest (weights included): on a CPU the process' VmHWM, reset before each run, with
glibc giving every large block back at once (MALLOC_MMAP_THRESHOLD_); on a GPU torch's max_memory_allocated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grpo_scoring.groups import Group

SHAPES = {"512/128/8": (512, 128, 8), "512/128/8, 4 groups": (512, 128, 8, 4)}
THRESHOLD = "65536"


def measure(vocabulary: int, shape: tuple[int, ...], *, device: str, repetitions: int) -> dict[str, list[int]]:
    """Bytes over rest, repetition by repetition: {"body": [...], "scored": [...]}."""
    command = [sys.executable, "-m", "tests.bench.reference.memory", "--vocabulary", str(vocabulary)]
    command += ["--device", device, "--repetitions", str(repetitions), "--shape", ",".join(map(str, shape))]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": THRESHOLD, "MALLOC_TRIM_THRESHOLD_": THRESHOLD}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, timeout=900)
    found: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure in this process, and print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocabulary", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--shape", default="512,128,8")
    values = parser.parse_args()
    prompt, completion, size, *count = (int(part) for part in values.shape.split(","))
    groups = _groups(values.vocabulary, prompt, completion, size, *count)
    scorer = _scorer(values.vocabulary, values.device)
    peak = _peak_cuda if values.device.startswith("cuda") else _peak_cpu
    scored = lambda: scorer.score(groups)  # noqa: E731
    body = _without_head(scorer.model, scored)
    body(), scored()
    found: dict[str, list[int]] = {"body": [], "scored": []}
    for _ in range(values.repetitions):
        found["body"].append(peak(body))
        found["scored"].append(peak(scored))
    print(json.dumps(found))


def _scorer(vocabulary: int, device: str) -> Any:
    import torch
    import transformers
    from grpo_scoring.scorer import Scorer

    from tests.assets.smollm2 import cached_smollm2

    config = transformers.AutoConfig.from_pretrained(cached_smollm2())
    config.vocab_size = vocabulary
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
    return Scorer(model.to(device))


def _groups(vocabulary: int, prompt: int, completion: int, size: int, count: int = 1) -> list[Group]:
    import numpy as np

    draw = np.random.default_rng(0)
    return [
        Group.of(draw.integers(0, vocabulary, prompt), list(draw.integers(0, vocabulary, (size, completion))))
        for _ in range(count)
    ]


def _without_head(model: Any, run: Callable[[], object]) -> Callable[[], None]:
    """The same run with a head that gives zeros."""
    import torch
    from grpo_scoring.head import HeadOutput

    head = model.get_output_embeddings()

    def nothing(hidden: torch.Tensor, targets: torch.Tensor, **_: object) -> HeadOutput:
        return HeadOutput(torch.zeros(targets.shape, device=targets.device), None)

    def body() -> None:
        real, head.forward = head.forward, nothing
        try:
            run()
        finally:
            head.forward = real

    return body


def _peak_cpu(run: Callable[[], object]) -> int:
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from what is resident now
    rest = _status("VmRSS")
    run()
    return _status("VmHWM") - rest


def _peak_cuda(run: Callable[[], object]) -> int:
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    rest = torch.cuda.memory_allocated()
    run()
    return int(torch.cuda.max_memory_allocated() - rest)


def _status(name: str) -> int:
    lines: Sequence[str] = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
