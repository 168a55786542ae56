from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import datasets
import pytest
from grpo_api.v1alpha1 import Dataset as DatasetSpec
from grpo_trainer.dataset import PromptDataset, load_prompts, read
from grpo_trainer.errors import DatasetError
from grpo_trainer.interruptions import HubUnreachable

from tests.unit.trainer.tiny_model import make_tokenizer

ROWS = [{"prompt": f"{a}+{b}=", "answer": a + b, "level": "easy"} for a in range(3) for b in range(3)]


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def load(path: Path | str, chat: bool = False, **fields: Any) -> PromptDataset:
    return load_prompts(DatasetSpec(name=str(path), **fields), make_tokenizer(chat))


@pytest.mark.parametrize("form", ["jsonl", "json", "parquet", "folder", "splits", "saved", "saved splits"])
def test_forms_that_are_read(form: str, tmp_path: Path) -> None:
    data, path = datasets.Dataset.from_list(ROWS), tmp_path / "data"
    if form == "jsonl":
        path = write_jsonl(tmp_path / "data.jsonl", ROWS)
    elif form == "json":
        path = tmp_path / "data.json"
        path.write_text(json.dumps(ROWS))
    elif form == "parquet":
        path = tmp_path / "data.parquet"
        data.to_parquet(path)
    elif form == "folder":
        write_jsonl(path / "part-1.jsonl", ROWS[:4])
        write_jsonl(path / "part-2.jsonl", ROWS[4:])
    elif form == "splits":
        write_jsonl(path / "train.jsonl", ROWS)
        write_jsonl(path / "test.jsonl", ROWS[:2])
        assert len(read(DatasetSpec(name=str(path), split="test"))) == 2
    elif form == "saved":
        data.save_to_disk(path)
    else:
        datasets.DatasetDict({"train": data}).save_to_disk(path)
    prompts = load(path)
    assert len(prompts) == prompts.total == len(ROWS)
    assert prompts.too_long == 0
    first = prompts[4]
    assert first.prompt == "1+1="
    assert first.prompt_ids == make_tokenizer()("1+1=")["input_ids"]
    assert first.columns == {"answer": 2, "level": "easy"}
    assert first.index == 4


def test_slices_of_a_split(tmp_path: Path) -> None:
    assert len(load(write_jsonl(tmp_path / "d.jsonl", ROWS), split="train[:5]")) == 5


def test_text_becomes_messages_where_there_is_a_chat_template(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", ROWS)
    prompt = load(path, chat=True, system_prompt="Count.")[0]
    assert prompt.prompt == [{"role": "system", "content": "Count."}, {"role": "user", "content": "0+0="}]
    text = make_tokenizer().decode(prompt.prompt_ids)
    assert text == "<|im_start|>system\nCount.<|im_end|>\n<|im_start|>user\n0+0=<|im_end|>\n<|im_start|>assistant\n"


def test_messages_are_taken_and_keep_their_own_system_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = [{"role": "system", "content": "own"}, {"role": "user", "content": "a"}]
    other = [{"role": "user", "content": "b"}]
    path = write_jsonl(tmp_path / "d.jsonl", [{"prompt": own}, {"prompt": other}])
    prompts = load(path, chat=True, system_prompt="mine")
    assert [prompts[i].prompt[0]["content"] for i in range(2)] == ["own", "mine"]  # type: ignore[index]
    assert "1 prompts keep their own system message" in caplog.text


def test_another_prompt_column_goes_to_the_rewards_as_well(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", [{"problem": "1+1=", "solution": "2"}])
    prompt = load(path, prompt_column="problem")[0]
    assert prompt.prompt == "1+1="
    assert prompt.columns == {"problem": "1+1=", "solution": "2"}


def test_reserved_columns_are_not_given_to_rewards(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", [{"prompt": "a", "completions": "x", "answer": "y"}])
    assert load(path)[0].columns == {"answer": "y"}
    assert "their names are reserved: completions" in caplog.text


def test_too_long_prompts_are_dropped_counted_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"prompt": "x" * length} for length in (3, 9, 5, 6)]
    with caplog.at_level(logging.INFO):
        prompts = load(write_jsonl(tmp_path / "d.jsonl", rows), max_prompt_length=5)
    assert [prompts[i].prompt for i in range(len(prompts))] == ["xxx", "xxxxx"]
    assert (prompts.total, prompts.too_long) == (4, 2)
    assert "2 prompts, 2 dropped because they are longer than 5 tokens" in caplog.text


def test_length_counts_the_chat_template(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", [{"prompt": "x"}, {"prompt": "y"}])
    with pytest.raises(DatasetError, match=r"dataset.maxPromptLength: all 2 prompts of .* longer than 5 tokens: raise"):
        load(path, chat=True, max_prompt_length=5)


@pytest.mark.parametrize(
    ("rows", "fields", "chat", "message"),
    [
        (
            ROWS,
            {"prompt_column": "question"},
            False,
            r"dataset.promptColumn: .* no column 'question'; it has prompt, answer",
        ),
        (ROWS, {"split": "test"}, False, r"dataset.split: .*d.jsonl, split test cannot be read"),
        (ROWS, {"system_prompt": "x"}, False, "dataset.systemPrompt: the tokenizer has no chat template"),
        ([{"prompt": [{"role": "user", "content": "a"}]}], {}, False, "row 0 of .* but the tokenizer has no chat"),
        ([{"prompt": "a"}, {"prompt": ""}], {}, False, "dataset.promptColumn: row 1 of .* is empty"),
        ([{"prompt": "a"}, {"prompt": None}], {}, False, "row 1 of .* neither text nor a list of messages"),
        ([{"prompt": 3}], {}, False, "row 0 of .* neither text nor a list of messages .*: 3"),
        ([{"prompt": [{"text": "a"}]}], {}, True, "row 0 of .* neither text nor a list of messages"),
        (ROWS, {"split": "train[:0]"}, False, "dataset.split: .* corresponds to no data"),
        (ROWS, {"split": "train[:x]"}, False, "dataset.split: .* Unrecognized instruction format"),
        (ROWS, {"config": "main"}, False, "dataset.config: .* has no configurations: remove the field"),
    ],
)
def test_errors_name_the_field(
    rows: list[dict[str, Any]], fields: dict[str, Any], chat: bool, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        load(write_jsonl(tmp_path / "d.jsonl", rows), chat=chat, **fields)
    assert caught.value.exit_code == 65


def test_a_missing_file_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"dataset.name: there is no file or folder .*: is the volume mounted\?"):
        load(tmp_path / "none.jsonl")


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.xml").write_text("<a/>")
    with pytest.raises(DatasetError, match=r"data.xml does not end in .json, .jsonl, .parquet"):
        load(tmp_path / "data.xml")


def test_an_unreadable_file_names_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n{broken')
    with pytest.raises(DatasetError, match=r"dataset.name: .*bad.jsonl, split train cannot be read"):
        load(tmp_path / "bad.jsonl")


def test_a_hub_id_without_the_hub_names_the_dataset() -> None:
    with pytest.raises(DatasetError, match=r"dataset.name: nobody/nothing, split train cannot be read"):
        load("nobody/nothing")


def test_splits_of_a_saved_folder(tmp_path: Path) -> None:
    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(tmp_path / "one")
    with pytest.raises(DatasetError, match=r"dataset.split: .* without splits"):
        load(tmp_path / "one", split="test")
    datasets.DatasetDict({"train": data}).save_to_disk(tmp_path / "two")
    with pytest.raises(DatasetError, match=r"dataset.split: .* no split 'test'; it has train"):
        load(tmp_path / "two", split="test")


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).select([]).to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(DatasetError, match=r"dataset.name: .* has no rows"):
        load(tmp_path / "empty.parquet")


def test_a_hub_that_does_not_answer_is_no_error_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's client is a stand-in: the real one takes most of a minute to give up."""

    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach 'org/data' on the Hub (ConnectError)")

    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(HubUnreachable, match=r"^dataset\.name: org/data, split train .*could not be reached"):
        read(DatasetSpec(name="org/data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DatasetError, match=r"^dataset\.name: "):
        read(DatasetSpec(name="org/data"))
