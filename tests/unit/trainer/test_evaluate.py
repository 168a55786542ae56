from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from grpo_trainer.evaluate import main

from tests.unit.trainer.tiny_model import save_tiny_model

REWARDS = """
def is_a(completions, answer, **kwargs):
    return [float(c[:1] == a) for c, a in zip(completions, answer)]

def length(completion_ids, **kwargs):
    return [len(ids) for ids in completion_ids]

def first_id(completion_ids, **kwargs):
    return [ids[0] for ids in completion_ids]

def odd_only(completions, number, **kwargs):
    return [1.0 if n % 2 else None for n in number]

def chat(prompts, completions, **kwargs):
    return [float(p[0]["content"] == "be brief" and c[0]["role"] == "assistant") for p, c in zip(prompts, completions)]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    save_tiny_model(folder / "model")
    save_tiny_model(folder / "chat-model", chat_template=True)
    (folder / "judge.py").write_text(REWARDS)
    rows = [{"prompt": "x" * (1 + i % 5), "answer": "a", "number": i} for i in range(11)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def run(folder: Path, *argv: str, model: str = "model") -> dict[str, Any]:
    output = folder / "report.json"
    output.unlink(missing_ok=True)
    code = main(
        [
            *("--model", str(folder / model), "--dataset", str(folder / "data.jsonl"), "--output", str(output)),
            *("--reward-path", str(folder), "--max-completion-length", "6", "--batch-size", "4", *argv),
        ]
    )
    assert code == 0
    return json.loads(output.read_text())  # type: ignore[no-any-return]


def test_report_and_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(folder, "--reward", "judge:length", "--reward", "judge:odd_only", "--num-generations", "3")
    assert report["prompts"] == 11
    assert report["greedy"] == report["results"]["greedy"]["rewards"]["length"]
    assert report["greedy"] == report["results"]["greedy"]["mean_length"]
    assert report["results"]["sampled"]["unscored"] == {"length": 0, "odd_only": 18}
    assert report["results"]["sampled"]["best"]["length"] >= report["sampled"]
    assert report["results"]["greedy"]["rewards"]["odd_only"] == 1.0
    out = capsys.readouterr().out
    assert "11 prompts" in out
    assert "best of 3" in out
    assert out.count("\n") == 6


def test_sampling_is_by_the_seed_and_ignores_the_folders_own_settings(folder: Path) -> None:
    from transformers import GenerationConfig

    # With top_k 1 from the folder, sampling would be greedy.
    GenerationConfig(do_sample=True, top_k=1, eos_token_id=2, pad_token_id=0).save_pretrained(folder / "model")
    argv = ("--reward", "judge:first_id", "--num-generations", "4")
    one, same, other = (run(folder, *argv, "--seed", seed)["results"] for seed in ("1", "1", "2"))
    assert one == same
    assert one["sampled"]["rewards"] != other["sampled"]["rewards"]
    assert one["sampled"]["best"] != one["sampled"]["rewards"]
    assert one["greedy"] == other["greedy"]


def test_chat_models_get_messages(folder: Path) -> None:
    report = run(
        folder, "--reward", "judge:chat", "--system-prompt", "be brief", "--num-generations", "0", model="chat-model"
    )
    assert report["greedy"] == 1.0
    assert report["sampled"] is None
    assert set(report["results"]) == {"greedy"}


def test_samples_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(folder, "--reward", "judge:length", "--samples", "2", "--num-generations", "3", "--limit", "5")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("'x")] == ["'x'", "'xx'"]
    assert sum(line.startswith("  greedy   ") for line in lines) == 2
    assert sum(line.startswith("  sampled  ") for line in lines) == 6


def test_limit_split_and_prompt_length(folder: Path) -> None:
    report = run(folder, "--reward", "judge:is_a", "--limit", "2", "--split", "train[:8]", "--max-prompt-length", "3")
    assert report["prompts"] == 2
    assert report["too_long"] == 2


def test_without_output_the_json_comes_after_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--model", str(folder / "model"), "--dataset", str(folder / "data.jsonl"), "--reward", "judge:is_a"]
    assert main([*argv, "--reward-path", str(folder), "--max-completion-length", "2", "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["prompts"] == 1


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["--reward", "judge:nothing"], 65, "reward function judge:nothing: cannot be imported"),
        (["--reward", "judge:is_a", "--dataset", "none.jsonl"], 65, "dataset.name: there is no file or folder"),
        (["--reward", "judge:is_a", "--model", "./nowhere"], 64, "--model: ./nowhere cannot be loaded"),
        (["--reward", "judge:is_a", "--batch-size", "0"], 64, "--batch-size: must be at least 1, got 0"),
        (["--reward", "judge:is_a", "--temperature", "0"], 64, "--temperature: must be above 0"),
        (["--reward", "judge:is_a", "--reward-path", "nowhere"], 64, "--reward-path: nowhere is not a folder"),
        (["--reward", "judge:is_a", "--max-prompt-length", "0"], 64, "--max-prompt-length: Input should be"),
        (["--reward", "judge:chat"], 65, "reward function judge:chat: raised TypeError: string indices"),
    ],
)
def test_errors(folder: Path, argv: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    defaults = {"--model": str(folder / "model"), "--dataset": str(folder / "data.jsonl"), "--reward-path": str(folder)}
    rest = [word for name, value in defaults.items() if name not in argv for word in (name, value)]
    assert main([*argv, *rest, "--max-completion-length", "2"]) == code
    assert capsys.readouterr().err.splitlines()[-1].startswith(message)
