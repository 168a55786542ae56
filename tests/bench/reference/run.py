"""One run: the sides, the cases, the rows."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from grpo_scoring.scorer import Scorer

from tests.assets.smollm2 import cached_smollm2
from tests.bench.reference import concurrency, memory, rows, vllm
from tests.bench.reference.cases import Case, cases
from tests.bench.reference.prompts import HINTED, Tokenised
from tests.bench.reference.results import AT_MOST, Row
from tests.bench.reference.server import Remote, Server, reference_server
from tests.bench.reference.timing import Spread, interleave, speed_up

LOAD = os.getloadavg()[0]
MAX_BATCH_TOKENS = 16384
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
FULL, CHUNKED, OURS, REMOTE, VLLM = "full logits", "chunked head", "in process", "HTTP", "vLLM"
AGREEMENT = {"float32": 3e-5, "bfloat16": 0.15}
"""Largest difference, relative to the larger of 1 and the log-probability. float32: over 30 layers of real weights two
plain forwards of transformers differ by 1.3e-5 where only their batches differ (the row "chunked head, difference of
values"). Against an fp64 forward (256/128/4): transformers row by row 1.3e-5, in one batch 2.1e-5, ours 1.5e-5.
bfloat16: HF's own logits are rounded to 8 bits, 0.06 at a size of 16 to 32; ours are not."""
VLLM_AGREEMENT = {"float32": 1e-4, "bfloat16": 0.3}
VOCABULARIES = (49152, 151936)
"""SmolLM2's, and Qwen2.5's."""


def run(values: argparse.Namespace, folder: Path, stack: contextlib.ExitStack) -> tuple[list[Row], list[str]]:
    """Measure everything. Returns the rows, and what was left out and why."""
    torch.set_num_threads(values.threads)
    dtype, model = DTYPES[values.device], cached_smollm2()
    data = Tokenised(transformers.AutoTokenizer.from_pretrained(model))
    chosen = [case for case in cases(data, quick=values.quick) if not values.only or values.only in case.name]
    flags = ["--dtype", dtype, "--device", values.device, "--max-batch-tokens", str(MAX_BATCH_TOKENS)]
    server = stack.enter_context(
        reference_server(model, folder / "server.log", threads=values.threads, flags=[*flags, "--log-level", "warning"])
    )
    left_out: list[str] = []
    other = _vllm(values, model, folder, stack, left_out)
    sides = _Sides(model, dtype, values.device, server, other)
    found: list[Row] = []
    for score in sides.of(Case("warm-up", data.exact(64, 16, 2), 1.0)).values():
        score()
    for case in chosen:
        found += _case(case, sides, values.repetitions, dtype)
    if not values.only:
        found.append(_concurrency(server, data, values))
        found += _memory(values)
    return found, left_out


class _Sides:
    """Every way to score. Our scorer exchanges a model's attention, so the others have a model of their own."""

    def __init__(self, path: Path, dtype: str, device: str, server: Server, other: vllm.Vllm | None) -> None:
        def load() -> Any:
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
            return model.eval().requires_grad_(False).to(device)

        self.plain = load()
        self.scorer = Scorer(load(), max_batch_tokens=MAX_BATCH_TOKENS)
        self.remote = Remote(server, server.client())
        self.vllm = other
        if not self.scorer.shares_prompts:
            raise RuntimeError(f"prompts are not shared: {self.scorer.why_not}")

    def of(self, case: Case) -> dict[str, Callable[[], rows.Values]]:
        """What to call for a case, side by side."""
        groups = case.groups
        sides: dict[str, Callable[[], rows.Values]] = {
            FULL: lambda: rows.full_logits(self.plain, groups),
            CHUNKED: lambda: rows.chunked_head(self.plain, groups, MAX_BATCH_TOKENS),
            OURS: lambda: self.scorer.score(groups).values,
            REMOTE: self.remote.timed(groups),
        }
        if self.vllm is not None:
            other = self.vllm
            sides[VLLM] = lambda: other.score(groups)
        return sides


def _case(case: Case, sides: _Sides, repetitions: int, dtype: str) -> list[Row]:
    print(f"{case.name} (ratio of tokens {case.token_ratio:.2f})", flush=True)
    sides.remote.overheads.clear()
    done = interleave(sides.of(case), repetitions, lambda line: print(line, flush=True))
    truth = done[FULL].results[0]
    seconds = {name: round(float(np.median(side.seconds)), 3) for name, side in done.items()}
    common = case.conditions | {"seconds": seconds, "repetitions": repetitions}
    found = []
    for name in (CHUNKED, OURS, REMOTE, *([VLLM] if VLLM in done else [])):
        apart = [float(np.max(np.abs(v - truth) / np.maximum(1, np.abs(truth)))) for v in done[name].results]
        bound = (VLLM_AGREEMENT if name == VLLM else AGREEMENT)[dtype]
        row = Row.of(f"{case.name}: {name}, difference of values", Spread.of(apart), bound, AT_MOST)
        if max(apart) > bound:
            print(row, flush=True)
        found.append(row)
    here = done[REMOTE].seconds
    found += [
        Row.of(f"{case.name}: HTTP over {FULL}", speed_up(done[FULL].seconds, here), case.target, **common),
        Row.of(f"{case.name}: HTTP over {CHUNKED}", speed_up(done[CHUNKED].seconds, here), 1.0, **common),
        Row.of(f"{case.name}: {OURS} over {FULL}", speed_up(done[FULL].seconds, done[OURS].seconds), None, **common),
        Row.of(
            f"{case.name}: HTTP's overhead over the forward", Spread.of(sides.remote.overheads), 0.03, AT_MOST, **common
        ),
    ]
    if VLLM in done:
        found.append(Row.of(f"{case.name}: HTTP over {VLLM}", speed_up(done[VLLM].seconds, here), None, **common))
    for row in found[-5:]:
        print(f"  {row}", flush=True)
    return found


def _concurrency(server: Server, data: Tokenised, values: argparse.Namespace) -> Row:
    size, length = (2, 16) if values.quick else (4, 64)
    groups = data.ragged(40, [size] * 8, HINTED, prompt=256, completion=length)
    done = concurrency.measure(server, groups, values.repetitions)
    for one, many in zip(done["one"].results, done["many"].results, strict=True):
        np.testing.assert_allclose(many, one, rtol=AGREEMENT[DTYPES[values.device]], atol=1e-5)
    seconds = {name: round(float(np.median(side.seconds)), 3) for name, side in done.items()}
    return Row.of(
        "8 clients at once over one client that sends all",
        speed_up(done["one"].seconds, done["many"].seconds),
        0.95,
        groups=8,
        completions=size,
        seconds=seconds,
        repetitions=values.repetitions,
    )


def _memory(values: argparse.Namespace) -> list[Row]:
    found = []
    shapes = {"128/32/4": (128, 32, 4)} if values.quick else memory.SHAPES
    for vocabulary in VOCABULARIES:
        for name, shape in shapes.items():
            peaks = memory.measure(vocabulary, shape, device=values.device, repetitions=values.repetitions)
            ratios = [mine / theirs for mine, theirs in zip(peaks["scored"], peaks["body"], strict=True)]
            row = Row.of(
                f"peak memory over the body's, vocabulary {vocabulary}, {name}",
                Spread.of(ratios),
                1.15,
                AT_MOST,
                bodyMegabytes=round(float(np.median(peaks["body"])) / 1e6, 1),
                scoredMegabytes=round(float(np.median(peaks["scored"])) / 1e6, 1),
                repetitions=values.repetitions,
            )
            print(row, flush=True)
            found.append(row)
    return found


def _vllm(
    values: argparse.Namespace, model: Path, folder: Path, stack: contextlib.ExitStack, left_out: list[str]
) -> vllm.Vllm | None:
    if values.no_vllm:
        left_out.append("vLLM: --no-vllm")
        return None
    python = vllm.interpreter()
    if python is None:
        left_out.append("vLLM: no .venv-vllm here, and VLLM_PYTHON names none")
        return None
    try:
        return stack.enter_context(
            vllm.vllm_server(python, model, folder / "vllm.log", threads=values.threads, device=values.device)
        )
    except RuntimeError as error:
        left_out.append(f"vLLM: its server does not start: {error}")
        return None
