"""spec.dataset → prompts that are ready for generation."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import datasets
from grpo_api.v1alpha1 import Dataset as DatasetSpec
from grpo_scoring.outages import is_outage

from grpo_trainer.errors import DatasetError
from grpo_trainer.interruptions import HubUnreachable
from grpo_trainer.prompts import Message, Prompt, as_messages, tokenize

logger = logging.getLogger(__name__)

FORMATS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}
"""File endings that are read, and the name of their reader in `datasets`."""

RESERVED_COLUMNS = frozenset(
    {"prompt", "prompts", "completion", "completions", "completion_ids", "trainer_state", "log_metric", "log_extra"}
)
"""Columns that do not go to reward functions, whose arguments of these names mean something else (TRL)."""

_BLAME = (
    ("Unknown split", "dataset.split"),
    ("corresponds to no data", "dataset.split"),
    ("Unrecognized instruction format", "dataset.split"),
    ("BuilderConfig", "dataset.config"),
    ("Config name is missing", "dataset.config"),
)
"""Parts of the messages of `datasets`, and the field that they are about."""

_CHUNK = 1000


class PromptDataset:
    """The prompts of a job, none longer than `maxPromptLength`.

    Text prompts become one user message where the tokenizer has a chat template (and reward functions then get
    messages); without one they are tokenized as they are.
    """

    def __init__(self, rows: datasets.Dataset, spec: DatasetSpec, tokenizer: Any, *, total: int) -> None:
        self._rows = rows
        self._spec = spec
        self._tokenizer = tokenizer
        self.total = total
        """Rows before too long prompts were dropped."""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Prompt:
        row = self._rows[index]
        prompt = _prompt(row[self._spec.prompt_column], self._spec, self._tokenizer)
        columns = {name: value for name, value in row.items() if name not in RESERVED_COLUMNS}
        return Prompt(index, prompt, tokenize([prompt], self._tokenizer)[0], columns)

    @property
    def too_long(self) -> int:
        """Prompts that were dropped because they are longer than `maxPromptLength`."""
        return self.total - len(self)


def load_prompts(spec: DatasetSpec, tokenizer: Any) -> PromptDataset:
    """Read a dataset, check every prompt and drop those that are too long.

    Raises:
        DatasetError: it names the field of spec.dataset: nothing there, an unknown split, a missing column, a prompt
            that is neither text nor messages, a system prompt or messages without a chat template, nothing left.
    """
    started = time.monotonic()
    rows = read(spec)
    if len(rows) == 0:
        raise DatasetError("dataset.name", f"{_where(spec)} has no rows")
    if spec.prompt_column not in rows.column_names:
        names = ", ".join(rows.column_names)
        raise DatasetError(
            "dataset.promptColumn", f"{_where(spec)} has no column {spec.prompt_column!r}; it has {names}"
        )
    if spec.system_prompt is not None and not _has_template(tokenizer):
        raise DatasetError(
            "dataset.systemPrompt", "the tokenizer has no chat template: remove the field, or put it into the prompts"
        )
    hidden = sorted(RESERVED_COLUMNS.intersection(rows.column_names) - {spec.prompt_column})
    if hidden:
        logger.warning("dataset columns not given to reward functions, their names are reserved: %s", ", ".join(hidden))

    column = rows.select_columns([spec.prompt_column])
    kept, own_system = [], 0
    for start in range(0, len(rows), _CHUNK):
        values = column[start : start + _CHUNK][spec.prompt_column]
        for offset, value in enumerate(values):
            _check(value, start + offset, spec, tokenizer)
            own_system += not isinstance(value, str) and value[0]["role"] == "system"
        ids = tokenize([_prompt(value, spec, tokenizer) for value in values], tokenizer)
        kept += [start + i for i, row in enumerate(ids) if len(row) <= spec.max_prompt_length]
    if not kept:
        raise DatasetError(
            "dataset.maxPromptLength",
            f"all {len(rows)} prompts of {_where(spec)} are longer than {spec.max_prompt_length} tokens: raise it",
        )
    if spec.system_prompt is not None and own_system:
        logger.warning("%d prompts keep their own system message instead of dataset.systemPrompt", own_system)
    prompts = PromptDataset(rows if len(kept) == len(rows) else rows.select(kept), spec, tokenizer, total=len(rows))
    logger.info(
        "%s: %d prompts, %d dropped because they are longer than %d tokens (%.1f s)",
        _where(spec), len(prompts), prompts.too_long, spec.max_prompt_length, time.monotonic() - started,
    )  # fmt: skip
    return prompts


def read(spec: DatasetSpec) -> datasets.Dataset:
    """Return the rows of a hub dataset, a file, a folder of files, or a folder that `save_to_disk` wrote.

    Raises:
        HubUnreachable: the hub does not answer.
        DatasetError: it names the field.
    """
    path = Path(spec.name)
    if spec.config is not None and (path.is_file() or _is_saved_to_disk(path)):
        raise DatasetError("dataset.config", f"{path} has no configurations: remove the field")
    try:
        if _is_saved_to_disk(path):
            return _choose_split(datasets.load_from_disk(spec.name), spec)
        if path.is_file():
            return datasets.load_dataset(_format(path), data_files=spec.name, split=spec.split)
        if not path.is_dir() and _looks_like_path(spec.name):
            raise DatasetError("dataset.name", f"there is no file or folder {spec.name}: is the volume mounted?")
        return datasets.load_dataset(spec.name, spec.config, split=spec.split)
    except DatasetError:
        raise
    except Exception as error:  # datasets raises many kinds, up to plain Exception
        if is_outage(error):
            raise HubUnreachable("dataset.name", _where(spec), error) from error
        text = " ".join(str(error).split())
        if "corresponds to no data" in text and "[" not in spec.split:
            raise DatasetError("dataset.name", f"{_where(spec)} has no rows") from error
        field = next((name for part, name in _BLAME if part in text), "dataset.name")
        raise DatasetError(field, f"{_where(spec)} cannot be read: {type(error).__name__}: {text}") from error


def _choose_split(found: Any, spec: DatasetSpec) -> datasets.Dataset:
    if isinstance(found, datasets.Dataset):
        if spec.split != "train":
            raise DatasetError("dataset.split", f"{spec.name} is a single dataset without splits: remove the field")
        return found
    if spec.split not in found:
        raise DatasetError("dataset.split", f"{spec.name} has no split {spec.split!r}; it has {', '.join(found)}")
    return found[spec.split]


def _is_saved_to_disk(path: Path) -> bool:
    return (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()


def _format(path: Path) -> str:
    try:
        return FORMATS[path.suffix]
    except KeyError:
        raise DatasetError("dataset.name", f"{path} does not end in {', '.join(FORMATS)}") from None


def _looks_like_path(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~")) or Path(name).suffix in FORMATS or name.count("/") > 1


def _where(spec: DatasetSpec) -> str:
    return f"{spec.name}{f' ({spec.config})' if spec.config else ''}, split {spec.split}"


def _has_template(tokenizer: Any) -> bool:
    return getattr(tokenizer, "chat_template", None) is not None


def _prompt(value: str | list[Message], spec: DatasetSpec, tokenizer: Any) -> str | list[Message]:
    if isinstance(value, str) and not _has_template(tokenizer):
        return value
    return as_messages(value, spec.system_prompt)


def _check(value: Any, row: int, spec: DatasetSpec, tokenizer: Any) -> None:
    where = f"row {row} of {_where(spec)}"
    if isinstance(value, str):
        if not value:
            raise DatasetError("dataset.promptColumn", f"{where} is empty: remove it from the dataset")
        return
    if not (isinstance(value, list) and value and all(_is_message(message) for message in value)):
        raise DatasetError(
            "dataset.promptColumn",
            f"{where} is neither text nor a list of messages with role and content: {value!r:.80}",
        )
    if not _has_template(tokenizer):
        raise DatasetError("dataset.promptColumn", f"{where} is chat messages, but the tokenizer has no chat template")


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str) and message.get("content") is not None
