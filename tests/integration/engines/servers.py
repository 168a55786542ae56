"""Real servers of vLLM and SGLang on the CPU, run as the operator's manifests say, in environments of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_api.v1alpha1 import GRPOJob
from grpo_operator.environment import reference_arguments
from grpo_operator.kubernetes import places
from grpo_operator.kubernetes.render.engines import engine_of
from grpo_operator.kubernetes.settings import Settings
from grpo_operator.state import Places

from tests.server_process import await_answer

ROOT = Path(__file__).parents[3]
START_SECONDS = 480
"""Imports take most of it, where other tests share the cores."""
TOKEN = "a-test-token-that-no-log-may-hold"

_CPU_FLAGS = {
    "vllm": ["--enforce-eager"],
    "sglang": [
        "--device", "cpu", "--attention-backend", "torch_native", "--disable-overlap-schedule",
        "--max-total-tokens", "8192", "--mem-fraction-static", "0.1",
    ],
}  # fmt: skip
_CPU_ENVIRONMENT = {"vllm": {"VLLM_CPU_KVCACHE_SPACE": "1"}, "sglang": {"SGLANG_USE_CPU_ENGINE": "1"}}


def python_of(engine: str) -> Path:
    """The interpreter of an engine's environment (`tools/python/engines.sh`)."""
    return ROOT / f".venv-{engine}" / "bin" / "python"


def job(engine: str, model: Path) -> GRPOJob:
    """A job whose reference is the model, in fp32, with that engine."""
    spec: dict[str, Any] = {
        "model": {"name": str(model), "dtype": "float32"},
        "dataset": {"name": "prompts.jsonl"},
        "rewards": {"functions": [{"function": "accuracy"}]},
        "reference": {"engine": engine, "maxBatchTokens": 2048},
    }
    return GRPOJob.model_validate({"metadata": {"name": "demo", "namespace": "ns", "uid": "u"}, "spec": spec})


@dataclass
class EngineServer:
    """One server, which can be killed and started again."""

    engine: str
    model: Path
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    command: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.engine}.log"

    def start(self) -> None:
        """Start it, in a process group of its own, without waiting."""
        made = job(self.engine, self.model)
        engine = engine_of(made, Settings())
        token = self.folder / "token"
        token.write_text(TOKEN)
        here = {
            "python3": str(python_of(self.engine)),
            f"{places.TOKEN_DIR}/{places.TOKEN_FILE}": str(token),
            f"{places.TMP_DIR}/key.yaml": str(self.folder / "key.yaml"),
            places.CACHE_DIR: str(self.folder / "cache"),
        }
        arguments = reference_arguments(made, self._places(token))
        self.command = [_replace(word, here) for word in engine.command] + [*arguments, *_CPU_FLAGS[self.engine]]
        variables = {each["name"]: _replace(each["value"], here) for each in engine.environment}
        secret = {each["name"]: TOKEN for each in engine.contract}
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "SGLANG_"))},
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "HOME": str(self.folder),
            **variables,
            **secret,
            **_CPU_ENVIRONMENT[self.engine],
        }
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                self.command, stdout=stream, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    def wait(self) -> None:
        """Wait until it is ready."""
        assert self.process is not None
        await_answer(self.process, f"{self.url}/health", self.log, START_SECONDS)

    def kill(self) -> None:
        """Kill all its processes at once (vLLM's API process can ignore SIGTERM)."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=30)
            self.process = None

    def command_lines(self) -> list[str]:
        """What a process list shows of it and its children."""
        assert self.process is not None
        lines = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ProcessLookupError):
                if os.getpgid(int(entry.name)) == self.process.pid:
                    lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return lines

    def _places(self, token: Path) -> Places:
        return Places(
            output_dir="",
            config="",
            token_file=str(token),
            reference_url=self.url,
            reference_host="127.0.0.1",
            reference_port=self.port,
            master_addr="",
            master_port=0,
            progress_port=0,
            termination_log="",
        )


@contextlib.contextmanager
def engine_server(engine: str, model: Path, folder: Path, port: int) -> Iterator[EngineServer]:
    """Run one until the block ends, whatever happens in it."""
    folder.mkdir(parents=True, exist_ok=True)
    server = EngineServer(engine, model, folder, port)
    try:
        server.start()
        server.wait()
        yield server
    finally:
        server.kill()


def _replace(text: str, words: dict[str, str]) -> str:
    for word, other in words.items():
        text = text.replace(word, other)
    return text
