"""vLLM's own server, where a second environment has it: `prompt_logprobs` of prompt and completion together.

The environment is `.venv-vllm` (or VLLM_PYTHON, the interpreter of one). vLLM is not a dependency of this project: its
pins conflict with ours. A prefix cache cannot help here: vLLM computes a prompt anew where its log-probabilities are
asked for.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from grpo_scoring.groups import Group

from tests.bench.reference.rows import Values
from tests.bench.reference.server import as_rows
from tests.server_process import free_port, server_process

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 420


def interpreter() -> Path | None:
    """The Python that has vLLM; None where there is none."""
    path = Path(os.environ.get("VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
    if not path.exists():
        return None
    found = subprocess.run([path, "-c", "import vllm"], capture_output=True, timeout=300, check=False)
    return path if found.returncode == 0 else None


@dataclass(frozen=True)
class Vllm:
    """A vLLM server that is ready."""

    url: str

    def score(self, groups: Sequence[Group]) -> Values:
        """All rows in one request, as its completion API takes them."""
        rows = [prompt + completion for prompt, completion in zip(*as_rows(groups), strict=True)]
        body = {"model": "model", "prompt": rows, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=1200, trust_env=False)
        answer.raise_for_status()
        choices = sorted(answer.json()["choices"], key=lambda choice: int(choice["index"]))
        sizes = [completion.size for group in groups for completion in group.completions]
        values = []
        for row, choice, size in zip(rows, choices, sizes, strict=True):
            tail = choice["prompt_logprobs"][len(row) - size :]
            values += [entry[str(token)]["logprob"] for entry, token in zip(tail, row[len(row) - size :], strict=True)]
        return np.asarray(values, dtype=np.float32)


@contextlib.contextmanager
def vllm_server(python: Path, model: Path, log: Path, *, threads: int, device: str) -> Iterator[Vllm]:
    """Run vLLM's OpenAI server until the block ends."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--served-model-name", "model"]
    command += ["--max-model-len", "2048", "--max-num-seqs", "32"]
    environment = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if device == "cpu":
        command += ["--dtype", "float32", "--enforce-eager"]
        environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": str(threads)}
    else:
        command += ["--dtype", "bfloat16", "--gpu-memory-utilization", "0.3"]
    with server_process(command, log, ready=f"{url}/health", seconds=START_SECONDS, environment=environment):
        yield Vllm(url)
