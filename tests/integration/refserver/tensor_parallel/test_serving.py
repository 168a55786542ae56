"""Two ranks on CPUs (gloo) behind one real HTTP port: values, versions, memory, and how they end."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from grpo_scoring.logprobs import completion_logprobs
from grpo_scoring.wire import SAFETENSORS, decode_answer, decode_problem

from tests.assets.tiny import SIZES, random_model

WAIT = 120.0
ODD = SIZES | {"vocab_size": 321, "intermediate_size": 129}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**ODD),
    "qwen2": lambda: transformers.Qwen2Config(**ODD, tie_word_embeddings=True),
    "qwen3": lambda: transformers.Qwen3Config(**ODD, head_dim=16),
    "gemma2": lambda: transformers.Gemma2Config(**ODD, head_dim=16, sliding_window=16),
}
"""An odd vocabulary and an odd width: the parts differ in size. Qwen2 and Gemma2 have tied embeddings."""


class Ranks:
    """``grpo-refserver --tensor-parallel-size 2``; its log is read line by line."""

    def __init__(self, folder: Path, model: Path, *flags: str, command: tuple[str, ...] = ()) -> None:
        self.reason = folder / "termination-log"
        self.process = subprocess.Popen(
            [
                *(command or (sys.executable,)),
                *("-m", "grpo_refserver.cli", "--port", "0", "--model", str(model)),
                *("--tensor-parallel-size", "2", "--device", "cpu"),
                *flags,
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "GRPO_TERMINATION_LOG": str(self.reason)},
        )
        self.lines: list[str] = []
        self.children: list[int] = []

    def until(self, *words: str) -> str:
        """Reads the log until each word has been seen; returns the last line."""
        missing = {word for word in words if not any(word in line for line in self.lines)}
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            missing = {word for word in missing if word not in line}
            if not missing:
                return line
        raise AssertionError(f"the log ended without {missing}: {self.lines}")

    def ready(self) -> "Ranks":
        """Waits until rank 0 serves and rank 1 follows."""
        self.until("INFO ready", "INFO following rank=1")
        listening = next(line for line in self.lines if " listening " in line)
        self.port = int(re.search(r"port=(\d+)", listening)[1])
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.children = [int(pid) for pid in path.read_text().split()]
        return self

    def end(self) -> int:
        """Waits for the end, and reads the rest of the log."""
        _, rest = self.process.communicate(timeout=WAIT)
        self.lines += rest.splitlines()
        return self.process.returncode

    def told(self) -> dict[str, Any]:
        """The reason in the termination log."""
        return json.loads(self.reason.read_text())


@pytest.fixture(scope="module")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def make(config: Any, seed: int = 0) -> Path:
        """A random fp32 model on disk, with weights large enough that mistakes show."""
        path = tmp_path_factory.mktemp("model") / "tiny"
        model = random_model(config, seed=seed)
        model.save_pretrained(path)
        return path

    return make


@pytest.fixture
def spread(tmp_path: Path) -> Iterator[Callable[..., Ranks]]:
    started: list[Ranks] = []

    def start(model: Path, *flags: str, **options: Any) -> Ranks:
        started.append(Ranks(tmp_path, model, *flags, **options))
        return started[-1]

    yield start
    for ranks in started:
        ranks.process.kill()  # the ranks die with it
        ranks.process.communicate()


def plain(path: Path, groups: Any, temperature: float = 1.0) -> np.ndarray:
    """What one process gives."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return completion_logprobs(model, groups, temperature=temperature).values


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("family", CONFIGS)
def test_values_are_those_of_one_process(family, make_model, spread, connect, make_groups):
    path = make_model(CONFIGS[family]())
    ranks = spread(path).ready()
    groups = make_groups((20, [30, 1, 12, 40]), (3, [9, 9]), (50, [60]))
    with connect(ranks.port) as client:
        for temperature in (1.0, 0.5, 1.7):
            got = client.logprobs(groups, temperature=temperature)
            expected = plain(path, groups, temperature)
            difference = np.abs(got - expected) / np.maximum(1, np.abs(expected))
            assert difference.max() <= 5e-6, difference.max()
        # A token of either half of the vocabulary, the last one included.
        last = [group.of([320, 1], [[320, 0, 160, 161, 320]]) for group in groups[:1]]
        np.testing.assert_allclose(client.logprobs(last), plain(path, last), rtol=5e-6, atol=5e-6)
    ranks.process.send_signal(signal.SIGTERM)
    assert ranks.end() == 0
    shares = [float(share) for line in ranks.lines for share in re.findall(r"part loaded .*share=([\d.]+)", line)]
    assert len(shares) == 2
    assert all(share < 0.54 for share in shares), shares


def test_sigterm_drains_rank_0_then_ends_all(make_model, spread, connect, make_groups, until):
    path = make_model(CONFIGS["llama"]())
    ranks = spread(path, "--deterministic", "--grace-period-seconds", "100").ready()
    groups = make_groups(*[(3, [4, 2])] * 300)
    with connect(ranks.port) as client, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(client.score, groups)
        with connect(ranks.port) as other:
            until(lambda: other.metric("grpo_reference_open_requests") == 1)
            ranks.process.send_signal(signal.SIGTERM)
            until(lambda: other.get("/readyz").status_code == 503)
        answer = accepted.result(WAIT)
    assert answer.status_code == 200
    np.testing.assert_allclose(
        decode_answer(answer.content, SAFETENSORS, groups).logprobs, plain(path, groups), rtol=5e-6, atol=5e-6
    )
    assert ranks.end() == 0
    assert all(gone(pid) for pid in ranks.children)
    assert not ranks.reason.exists()


@pytest.mark.parametrize("victim", [0, 1])
def test_one_ranks_death_ends_the_pod_and_is_named(victim, make_model, spread):
    ranks = spread(make_model(CONFIGS["llama"]())).ready()
    by_rank = {
        int(re.search(rb"(?:^|\0)RANK=(\d)", Path(f"/proc/{pid}/environ").read_bytes())[1]): pid
        for pid in ranks.children
    }
    os.kill(by_rank[victim], signal.SIGKILL)
    assert ranks.end() == 137
    assert all(gone(pid) for pid in ranks.children)
    told = ranks.told()
    assert told["rank"] == victim
    assert told["message"] == f"rank {victim} was ended by SIGKILL (out of memory?)"


def test_a_rank_that_dies_in_a_forward_is_named(make_model, spread, connect, make_groups, until):
    ranks = spread(make_model(CONFIGS["llama"]()), "--deterministic").ready()
    with connect(ranks.port) as client, ThreadPoolExecutor(1) as pool:
        pool.submit(client.score, make_groups(*[(3, [4, 2])] * 3000))
        with connect(ranks.port) as other:
            until(lambda: other.metric("grpo_reference_open_requests") == 1)
        second = next(
            pid for pid in ranks.children if b"\0RANK=1\0" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        )
        os.kill(second, signal.SIGKILL)
        assert ranks.end() == 137
    assert ranks.told()["rank"] == 1


def test_the_ranks_die_with_the_launcher(make_model, spread, until):
    ranks = spread(make_model(CONFIGS["llama"]())).ready()
    ranks.process.kill()
    until(lambda: all(gone(pid) for pid in ranks.children))


def test_a_model_that_cannot_be_spread_is_refused_with_the_field(make_model, spread):
    config = transformers.LlamaConfig(**ODD | {"num_key_value_heads": 1})
    ranks = spread(make_model(config))
    assert ranks.end() == 64
    told = ranks.told()
    assert told["reason"] == "ConfigurationError"
    assert "num_key_value_heads of the model is 1" in told["message"]


def test_under_torchrun(make_model, spread, connect, make_groups):
    path = make_model(CONFIGS["llama"]())
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    ranks = spread(path, command=torchrun).ready()
    groups = make_groups((5, [7, 3]))
    with connect(ranks.port) as client:
        np.testing.assert_allclose(client.logprobs(groups), plain(path, groups), rtol=5e-6, atol=5e-6)
    ranks.process.send_signal(signal.SIGTERM)
    ranks.end()
    assert sum("stopped exit_code=0" in line for line in ranks.lines) == 1


def test_versions_are_swapped_on_all_ranks_or_none(make_model, spread, connect, make_groups, tmp_path):
    root = tmp_path / "versions"
    base = make_model(CONFIGS["qwen2"]())
    shutil.copytree(make_model(CONFIGS["qwen2"](), seed=1), root / "step-1")
    groups = make_groups((20, [30, 1, 12]), (3, [9, 9]))
    expected = {"base": plain(base, groups), "step-1": plain(root / "step-1", groups)}
    assert np.abs(expected["base"] - expected["step-1"]).max() > 0.1
    ranks = spread(base, "--versions-root", str(root)).ready()
    with connect(ranks.port) as client:

        def check(version: str, path: str | None) -> None:
            got = client.logprobs(groups, version=version, version_path=path)
            np.testing.assert_allclose(got, expected[version], rtol=5e-6, atol=5e-6)

        check("base", None)
        check("step-1", "step-1")
        check("base", None)
        # Both ranks read the same files; one of them may find its part damaged alone: rank 1's, the last rows.
        shutil.copytree(root / "step-1", root / "step-2")
        _spoil_last_row(root / "step-2" / "model.safetensors", "model.embed_tokens.weight")
        refused = client.score(groups, version="step-2", version_path="step-2")
        problem = decode_problem(refused.status_code, refused.content)
        assert (refused.status_code, problem.field) == (422, "versionPath")
        assert "holds NaN or infinity in model.embed_tokens.weight" in problem.detail
        assert problem.detail.endswith("(rank 1)")
        assert client.get("/v1/info").json()["version"] == "base"
        check("base", None)
        check("step-1", "step-1")
        cut = root / "step-3"
        shutil.copytree(root / "step-1", cut)
        os.truncate(cut / "model.safetensors", 5000)
        assert client.score(groups, version="step-3", version_path="step-3").status_code == 422
        check("step-1", None)
        # Only weights are taken: a version that computes in another way would be scored as the base does.
        other = root / "step-4"
        shutil.copytree(root / "step-1", other)
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.1}))
        refused = client.score(groups, version="step-4", version_path="step-4")
        assert refused.status_code == 422
        assert "rms_norm_eps is 0.1" in decode_problem(422, refused.content).detail
        check("step-1", None)
    ranks.process.send_signal(signal.SIGTERM)
    assert ranks.end() == 0


def test_no_rank_holds_more_than_its_half_of_the_weights(make_model, spread):
    """Private memory of the rank processes with a model of 200 MB, against the same with a tiny one."""
    sizes = {"vocab_size": 20001, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8}
    large = make_model(transformers.LlamaConfig(**ODD | sizes))
    weights = (large / "model.safetensors").stat().st_size
    small = spread(make_model(CONFIGS["llama"]())).ready()
    least = min(map(_private_bytes, small.children))
    small.process.send_signal(signal.SIGTERM)
    assert small.end() == 0
    ranks = spread(large, "--max-batch-tokens", "64").ready()
    for pid in ranks.children:
        taken = _private_bytes(pid) - least
        print(f"{taken / 2**20:.0f} MiB of {weights / 2**20:.0f} MiB of weights")
        assert taken < 0.6 * weights


def _private_bytes(pid: int) -> int:
    """Of its own: on a CPU some of a part stays in the page cache, where its file is mapped, once for all ranks."""
    return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])


def _spoil_last_row(path: Path, name: str) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    tensors[name][-1, 0] = float("nan")
    save_file(tensors, path, metadata={"format": "pt"})
