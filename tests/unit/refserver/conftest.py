"""A tiny model on disk, a reference server in a thread, and clients that speak real HTTP to it."""

import asyncio
import copy
import os
import re
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import numpy as np
import pytest
import torch
import transformers
import uvicorn
from grpo_refserver.app import create_app
from grpo_refserver.auth import TokenFile
from grpo_refserver.service import Service
from grpo_refserver.settings import Settings
from grpo_refserver.worker import State
from grpo_scoring.groups import Group
from grpo_scoring.wire import SAFETENSORS, LogprobsRequest, decode_answer, encode_request

from tests.assets.tiny import SIZES, VOCABULARY, random_model

# No assertion on the clock: the machine may be busy.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")
torch.set_num_threads(1)

WAIT = 120.0
"""Limit of every wait: far above what is needed, so that a busy machine fails nothing."""


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random fp32 Llama of 2 layers with a word tokenizer."""
    from tokenizers import Tokenizer, models

    path = tmp_path_factory.mktemp("reference") / "tiny"
    model = random_model(transformers.LlamaConfig(**SIZES))
    model.save_pretrained(path)
    words = {f"w{index}": index for index in range(VOCABULARY)}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0"))
    ).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def model(model_path: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()


@pytest.fixture(autouse=True)
def _nothing_stays_changed() -> Iterator[None]:
    """What transformers changes while it makes a model is as before after every test; see ``turns.py``."""
    before = transformers.PreTrainedModel.tie_weights
    yield
    assert torch.get_default_dtype() is torch.float32
    assert transformers.PreTrainedModel.tie_weights is before


@pytest.fixture
def make_version(model: Any, tmp_path: Path) -> Callable[..., Path]:
    """Writes versions of the tiny model below ``tmp_path / "versions"``, each of other weights."""

    def make(name: str, change: Callable[[Any], object] = lambda _: None) -> Path:
        version = copy.deepcopy(model)
        torch.manual_seed(zlib.crc32(name.encode()))
        with torch.no_grad():
            for parameter in version.parameters():
                parameter.add_(0.1 * parameter.std() * torch.randn_like(parameter))
            change(version)
        path = tmp_path / "versions" / name
        version.save_pretrained(path)
        return path

    return make


class Gate:
    """Holds the model before its next forward, until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()

    def __call__(self, *_: object) -> None:
        self.reached.set()
        assert self._open.wait(WAIT), "nobody opened the gate"

    def open(self) -> None:
        self._open.set()


class Client(httpx.Client):
    """HTTP to one server, with the wire format."""

    def score(self, groups: list[Group], media_type: str = SAFETENSORS, **fields: Any) -> httpx.Response:
        body = encode_request(LogprobsRequest(groups, **fields), media_type)
        return self.post("/v1/logprobs", content=body, headers={"Content-Type": media_type})

    def logprobs(self, groups: list[Group], media_type: str = SAFETENSORS, **fields: Any) -> np.ndarray:
        response = self.score(groups, media_type, **fields)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == media_type
        return decode_answer(response.content, media_type, groups).logprobs

    def metric(self, name: str) -> float:
        lines = [line.rsplit(" ", 1) for line in self.get("/metrics").text.splitlines()]
        return sum(float(value) for key, value in lines if key == name or key.startswith(name + "{"))


def connect_to(port: int, **headers: str) -> Client:
    return Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=WAIT)


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.01)


class Running:
    """A server that listens."""

    def __init__(self, service: Service, port: int) -> None:
        self.service = service
        self.port = port

    def client(self, **headers: str) -> Client:
        return connect_to(self.port, **headers)

    def hold(self) -> Gate:
        """Closes a gate before the model."""
        gate = Gate()
        self.service.worker.loaded.model.model.register_forward_pre_hook(gate)
        return gate

    def until(self, condition: Callable[[], bool]) -> None:
        wait_until(condition)


@contextmanager
def serve(settings: Settings, *, load: Callable[[], Any] | None, token: TokenFile | None) -> Iterator[Running]:
    """Runs the app on a free port in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    started: list[tuple[Service, uvicorn.Server]] = []
    begun = threading.Event()

    async def run() -> None:
        service = Service(settings)
        if load is not None:
            service.worker._load = load
        server = uvicorn.Server(
            uvicorn.Config(create_app(service, token), log_config=None, lifespan="off", timeout_graceful_shutdown=5)
        )
        service.worker.start()
        started.append((service, server))
        begun.set()
        await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert begun.wait(WAIT)
    service, server = started[0]
    try:
        yield Running(service, listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(WAIT)
        assert service.worker.stop(WAIT)
        assert not thread.is_alive()


@pytest.fixture
def start(model_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts servers on the tiny model: ``start(max_batch_tokens=64)``; waits until they are ready."""
    with ExitStack() as stack:

        def make(
            *,
            load: Callable[[], Any] | None = None,
            token: TokenFile | None = None,
            ready: bool = True,
            **settings: Any,
        ) -> Running:
            server = stack.enter_context(serve(Settings(model=str(model_path), **settings), load=load, token=token))
            if ready:
                server.until(lambda: server.service.state is not State.LOADING)
                assert server.service.state is State.READY, server.service.worker.failure
            return server

        yield make


@pytest.fixture(scope="session")
def connect() -> Callable[..., Client]:
    return connect_to


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], bool]], None]:
    return wait_until


@pytest.fixture(scope="session")
def make_groups() -> Callable[..., list[Group]]:
    def make(*shape: tuple[int, list[int]], seed: int = 0) -> list[Group]:
        """Random groups: for each, the prompt's length and its completions' lengths."""
        random = np.random.default_rng(seed)

        def ids(length: int) -> np.ndarray:
            return random.integers(0, VOCABULARY, length)

        return [Group.of(ids(prompt), [ids(length) for length in lengths]) for prompt, lengths in shape]

    return make


class Process:
    """``grpo-refserver`` on a free port; its log is read line by line."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grpo_refserver.cli", "--port", "0", *flags],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.lines: list[str] = []
        self.port = int(re.search(r"listening .*port=(\d+)", self.until("listening"))[1])

    def until(self, word: str) -> str:
        """Reads the log up to a line with ``word``; ends with the process."""
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if word in line:
                return line
        raise AssertionError(f"the log ended without {word!r}: {self.lines}")

    def end(self) -> int:
        """Waits for the end, and reads the rest of the log."""
        _, rest = self.process.communicate(timeout=WAIT)
        self.lines += rest.splitlines()
        return self.process.returncode


@pytest.fixture
def launch(model_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def make(*flags: str) -> Process:
        started.append(Process("--model", str(model_path), *flags))
        return started[-1]

    yield make
    for server in started:
        server.process.kill()
        server.process.communicate()
