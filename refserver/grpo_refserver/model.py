"""Loading the model, and what is known about it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from grpo_scoring.outages import is_outage
from grpo_scoring.self_check import check_scoring
from grpo_scoring.tokenizer_hash import tokenizer_hash
from safetensors import SafetensorError

from grpo_refserver import logs, turns
from grpo_refserver.settings import ConfigurationError, HubUnreachable, Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to score.

    Attributes:
        model: the transformers causal LM, in eval mode.
        name: hub id or path it was loaded from.
        version: which version of the reference this is.
        vocab_size: rows of its input embedding: token ids must be below.
        max_sequence_length: most tokens of a prompt with one completion.
        tokenizer_hash: fingerprint of the tokenizer that lies beside the weights; None where none does.
        dtype: of the weights, as ``float32``.
        device: as ``cuda:0``.
        shares_prompts: whether a prompt is computed once for all its completions.
        why_not: where it is not, the reason.
    """

    model: Any
    name: str
    version: str
    vocab_size: int
    max_sequence_length: int
    tokenizer_hash: str | None
    dtype: str
    device: str
    shares_prompts: bool = False
    why_not: str | None = None


@dataclass(frozen=True)
class Placement:
    """Where a model goes that is not simply loaded and moved to a device.

    Attributes:
        device: of this process's part.
        arguments: makes further arguments for ``from_pretrained``; may raise ConfigurationError.
        prepare: called with the model before its first forward.
    """

    device: str
    arguments: Callable[[], Mapping[str, Any]]
    prepare: Callable[[Any], object]


def load(settings: Settings, placement: Placement | None = None) -> LoadedModel:
    """Loads and checks the model.

    Raises:
        HubUnreachable: the hub does not answer.
        ConfigurationError: there is no such model, or it cannot be scored.
    """
    import transformers  # seconds: not before the server listens

    logs.adopt("huggingface_hub", "transformers")
    transformers.utils.logging.disable_progress_bar()
    device = placement.device if placement else pick_device(settings.device)
    log.info("loading model", extra={"model": settings.model, "device": device})
    begun = time.monotonic()
    at_hub = ""
    if not os.path.exists(settings.model):  # unlike Path's, False for a name too long for a file
        if settings.model.startswith(("/", ".")):
            raise ConfigurationError(f"--model: there is no folder {settings.model}: is the volume mounted?")
        at_hub = f" (there is no folder {settings.model} in {Path.cwd()}, so it was looked for at the hub)"
        log.info("no such folder: looking at the hub", extra={"model": settings.model, "in": Path.cwd()})
    try:
        with turns.construction():
            model = transformers.AutoModelForCausalLM.from_pretrained(
                settings.model,
                revision=settings.revision,
                dtype=settings.dtype,
                attn_implementation=settings.attn_implementation,
                trust_remote_code=settings.trust_remote_code,
                **(placement.arguments() if placement else {}),
            )
    except Exception as error:
        if is_outage(error):
            raise HubUnreachable(
                f"--model {settings.model} cannot be loaded, the hub could not be reached{at_hub}: {error}"
            ) from error
        if not isinstance(error, OSError | ValueError | ImportError | SafetensorError):
            raise
        raise ConfigurationError(
            f"--model {settings.model} cannot be loaded{at_hub}: {_wrong_folder(settings.model) or error}"
        ) from error
    model.eval().requires_grad_(False)
    if placement:
        placement.prepare(model)
    else:
        model.to(device)
        own_memory(model)
    try:
        difference = check_scoring(model)
    except ValueError as error:
        raise ConfigurationError(f"--model {settings.model}: {error}") from error
    loaded = LoadedModel(
        model=model,
        name=settings.model,
        version=settings.model_version,
        vocab_size=model.get_input_embeddings().num_embeddings,
        max_sequence_length=_max_sequence_length(model, settings),
        tokenizer_hash=_tokenizer_hash(settings),
        dtype=str(model.dtype).removeprefix("torch."),
        device=device,
    )
    log.info(
        "model loaded",
        extra={
            "model": loaded.name,
            "version": loaded.version,
            "dtype": loaded.dtype,
            "parameters": model.num_parameters(),
            "self_check": f"{difference:.1e}",
            "seconds": f"{time.monotonic() - begun:.1f}",
        },
    )
    return loaded


def own_memory(model: Any) -> None:
    """Copies weights that still lie in a mapped file into memory of the process, one by one; only a CPU's can.

    transformers maps safetensors files. Weights that stay there change with the file, are read again whenever the
    page cache is short, and end the process by SIGBUS where the file is deleted on a network file system.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu":
            tensor.data = tensor.data.clone()


def pick_device(name: str) -> str:
    """``auto`` is the first GPU where there is one, else the CPU. Raises ConfigurationError for a device not there."""
    if name == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(f"--device {name} is no device: take auto, cpu, cuda or cuda:N") from None
    if device.type == "cpu":
        return name
    here = torch.accelerator.current_accelerator(check_available=True)
    if here is None or here.type != device.type:
        seen = f"only {here.type}" if here else "no GPU"
        raise ConfigurationError(f"--device {name}: torch sees {seen} here; use --device cpu or auto")
    if (device.index or 0) >= torch.accelerator.device_count():
        raise ConfigurationError(f"--device {name}: torch sees {torch.accelerator.device_count()} here, the first is 0")
    return name


def _max_sequence_length(model: Any, settings: Settings) -> int:
    """What the positions of the model allow, or less where the settings say so."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    wanted = settings.max_sequence_length
    if wanted is not None and positions is not None and wanted > positions:
        raise ConfigurationError(
            f"--max-sequence-length {wanted} is above the model's max_position_embeddings {positions}: lower it"
        )
    return int(wanted or positions or settings.request_tokens)


def _tokenizer_hash(settings: Settings) -> str | None:
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            settings.model, revision=settings.revision, trust_remote_code=settings.trust_remote_code
        )
    except Exception as error:  # noqa: BLE001  (a tokenizer is optional, and can fail in any way)
        log.warning("no tokenizer: trainers cannot compare theirs", extra={"error": type(error).__name__})
        return None
    return tokenizer_hash(tokenizer)


def _wrong_folder(model: str) -> str:
    """What is wrong with a model's folder where the libraries' errors mislead; empty where they do not.

    They look into a config.json that is not there, and say that files do not exist which this user may not read.
    """
    if not os.path.isdir(model):
        return ""
    files = {path.name: path for path in Path(model).glob("*")}
    if not {"config.json", "adapter_config.json"} & files.keys():
        return "the folder has no config.json: expected are config.json and safetensors, as save_pretrained writes them"
    closed = [name for name, path in files.items() if not os.access(path, os.R_OK)]
    return f"user {os.getuid()} may not read {', '.join(closed)}: give it the right" if closed else ""
