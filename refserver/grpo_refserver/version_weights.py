"""Loading a version's weights beside the model that serves, and making sure that they are whole."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from grpo_scoring.outages import is_outage
from grpo_scoring.self_check import check_scoring
from safetensors import SafetensorError

from grpo_refserver import turns
from grpo_refserver.engine import Refusal, VersionError
from grpo_refserver.model import LoadedModel, own_memory
from grpo_refserver.version_folder import passing_errors

log = logging.getLogger(__name__)

_SIZES = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "tie_word_embeddings",
)
"""What is compared before a model is made, for an error that names the cause; all shapes are compared after."""


_NOT_COMPUTED = frozenset(
    (
        *("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype", "use_cache"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id"),
        *("id2label", "label2id", "problem_type", "output_attentions", "output_hidden_states", "return_dict"),
        *("initializer_range", "attention_dropout", "pretraining_tp"),
    )
)
"""Entries of a config that change no log-probability."""


def load_weights(
    serving: LoadedModel,
    source: str,
    *,
    revision: str | None = None,
    attn_implementation: str | None = None,
) -> Any:
    """A model of the class, sizes and dtype of the one that serves, on the CPU, with the weights of ``source``.

    transformers gives random values to a weight that a file lacks, and only warns: every difference between the
    files and the model is refused here.

    Args:
        serving: what the version is to replace.
        source: a folder that ``version_folder`` has passed, or a hub id.
        revision: at the hub.
        attn_implementation: as the model that serves was loaded with.

    Raises:
        VersionError: it is not the same architecture, not whole, not finite, or cannot be read.
    """
    kind = type(serving.model)
    with reading_version(source):
        model, report = _made_in_turn(kind).from_pretrained(
            source,
            config=version_config(source, revision, serving),
            revision=revision,
            dtype=serving.model.dtype,
            attn_implementation=attn_implementation,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # to be told which, and to refuse them
            output_loading_info=True,
        )
    model.__class__ = kind
    own_memory(model)
    model.eval().requires_grad_(False)
    _check_report(source, report)
    _check_same_parameters(source, model, serving.model)
    _check_values(source, model)
    return model


@contextmanager
def reading_version(source: str) -> Iterator[None]:
    """Turns whatever reading a version's files may raise into a VersionError that says whether to try again."""
    try:
        with passing_errors(source):
            yield
    except VersionError as error:
        if error.__cause__ is not None and is_outage(error.__cause__):
            raise VersionError(str(error), Refusal.UNAVAILABLE) from error
        raise
    except SafetensorError as error:
        raise VersionError(f"{source} is damaged or cut off: {error}") from error
    except Exception as error:  # a folder can be wrong in any way, and the old version must go on serving
        lacks_memory = isinstance(error, MemoryError) or "allocate memory" in str(error)
        if not lacks_memory and not isinstance(error, ValueError | RuntimeError):
            log.exception("loading a version failed", extra={"source": source})
        what = "there is not enough memory for a second copy" if lacks_memory else f"{type(error).__name__}: {error}"
        refusal = Refusal.UNAVAILABLE if lacks_memory or is_outage(error) else Refusal.BAD
        raise VersionError(f"{source} cannot be loaded: {what}", refusal) from error


def version_config(source: str, revision: str | None, serving: LoadedModel) -> Any:
    """The version's own config. Raises VersionError where it is another architecture's."""
    kind = type(serving.model)
    config = kind.config_class.from_pretrained(source, revision=revision)
    raw, _ = kind.config_class.get_config_dict(source, revision=revision)
    ours, theirs = serving.model.config.get_text_config(), config.get_text_config()
    pairs = [("model_type", serving.model.config.model_type, raw.get("model_type"))]
    pairs += [(name, getattr(ours, name, None), getattr(theirs, name, None)) for name in _SIZES[1:]]
    for name, here, there in pairs:
        if here != there:
            raise VersionError(
                f"{source} is another architecture: {name} is {there}, and {here} in the model that serves"
            )
    if getattr(config, "quantization_config", None) != getattr(serving.model.config, "quantization_config", None):
        raise VersionError(f"{source} is quantized in another way than the model that serves: save plain weights")
    positions = getattr(theirs, "max_position_embeddings", None)
    if positions is not None and positions < serving.max_sequence_length:
        raise VersionError(
            f"{source} has max_position_embeddings {positions}, and this server takes sequences of "
            f"{serving.max_sequence_length}"
        )
    return config


def check_same_computation(source: str, config: Any, serving: LoadedModel) -> None:
    """Raises VersionError where a version's config computes in another way than the model that serves.

    For an engine that takes a version's weights and keeps its own config.
    """
    ours, theirs = (part.get_text_config().to_dict() for part in (serving.model.config, config))
    for name in sorted((ours.keys() | theirs.keys()) - _NOT_COMPUTED):
        if ours.get(name) != theirs.get(name):
            raise VersionError(
                f"{source} computes in another way: {name} is {theirs.get(name)}, and {ours.get(name)} in the model "
                "that serves, which takes no more than the weights of a version while it is spread over several devices"
            )


def _made_in_turn(kind: Any) -> Any:
    """The class, but the empty model is made in turn; its weights are read while forwards go on."""

    class InTurn(kind):  # type: ignore[misc]
        @classmethod
        def get_init_context(cls, *args: Any, **kwargs: Any) -> list[Any]:
            return [turns.construction(), *super().get_init_context(*args, **kwargs)]

    InTurn.__name__ = kind.__name__
    return InTurn


def _check_report(source: str, report: dict[str, Any]) -> None:
    for kind, meaning in (
        ("missing_keys", "lacks"),
        ("unexpected_keys", "has the unknown"),
        ("mismatched_keys", "has another shape of"),
        ("error_msgs", "cannot be read:"),
    ):
        if found := sorted(key if isinstance(key, str) else key[0] for key in report.get(kind) or ()):
            raise VersionError(f"{source} {meaning} {_some(found)}: save the whole model with save_pretrained")


def _check_same_parameters(source: str, model: Any, serving: Any) -> None:
    ours = {name: tuple(parameter.shape) for name, parameter in serving.named_parameters()}
    theirs = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    if odd := sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)):
        raise VersionError(f"{source} is another architecture: it differs in the shapes of {_some(odd)}")


def _check_values(source: str, model: Any) -> None:
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise VersionError(f"{source} holds NaN or infinity in {name}: the training run has diverged")
    try:
        check_scoring(model)
    except ValueError as error:
        raise VersionError(f"{source}: {error}") from error


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
