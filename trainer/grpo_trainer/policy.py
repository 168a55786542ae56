"""The policy: the model that is trained, sharded by DeepSpeed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deepspeed
import torch
from grpo_api.v1alpha1 import ModelSpec, Spec
from grpo_scoring.logprobs import RowLogprobs, enable_scoring
from grpo_scoring.outages import is_outage
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import HfDeepSpeedConfig

from grpo_trainer.deepspeed_config import deepspeed_config
from grpo_trainer.distributed import Communicator
from grpo_trainer.errors import ConfigurationError
from grpo_trainer.interruptions import HubUnreachable
from grpo_trainer.optimizer import make_optimizer, make_scheduler


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What is read of the model's folder before its weights: small, and the same on all ranks."""

    config: Any
    tokenizer: Any
    dtype: torch.dtype


def read_model_files(spec: ModelSpec) -> ModelFiles:
    """Read configuration and tokenizer.

    Raises:
        HubUnreachable: the hub does not answer.
        ConfigurationError: model.name cannot be read, or is no model this trainer can train.
    """
    where = {"revision": spec.revision, "trust_remote_code": spec.trust_remote_code}
    try:
        if spec.name.startswith(("/", ".")) and not Path(spec.name).exists():
            raise ConfigurationError("model.name", f"there is no folder {spec.name}: is the volume mounted?")
        config = AutoConfig.from_pretrained(spec.name, **where)
        tokenizer = AutoTokenizer.from_pretrained(spec.name, **where)
    except Exception as error:
        if is_outage(error):
            raise HubUnreachable("model.name", spec.name, error) from error
        if not isinstance(error, OSError | ValueError):
            raise
        text = " ".join(str(error).split())
        raise ConfigurationError("model.name", f"{spec.name} cannot be read: {text}") from error
    dtype = (getattr(config, "dtype", None) or torch.float32) if spec.dtype == "auto" else getattr(torch, spec.dtype)
    tokenizer.padding_side = "left"
    return ModelFiles(config, tokenizer, dtype)


class Policy:
    """The DeepSpeed engine around the model, and what the loop asks of it."""

    def __init__(self, engine: Any, temperature: float, zero_stage: int) -> None:
        self.engine = engine
        self.zero_stage = zero_stage
        self.device: torch.device = torch.device(engine.device)
        self._temperature = temperature

    @property
    def module(self) -> Any:
        """The transformers model; under ZeRO-3 its weights are shards outside of forward."""
        return self.engine.module

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and activations."""
        dtype: torch.dtype = next(self.module.parameters()).dtype
        return dtype

    @property
    def is_sharded(self) -> bool:
        """Whether parameters are sharded over ranks (ZeRO-3)."""
        return self.zero_stage == 3

    def logprobs(
        self, input_ids: Tensor, attention_mask: Tensor, completion_length: int, *, entropy: bool = False
    ) -> RowLogprobs:
        """Log-probabilities of the last `completion_length` columns, (B, C) fp32, at the sampling temperature.

        Carries gradient where enabled. A collective under ZeRO-3.
        """
        scored: RowLogprobs = self.engine(
            input_ids=input_ids.to(self.device),
            attention_mask=attention_mask.to(self.device),
            completion_length=completion_length,
            temperature=self._temperature,
            entropy=entropy,
        )
        return scored

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a micro-batch's loss, which is already divided for accumulation."""
        self.engine.backward(loss, scale_wrt_gas=False)

    def step(self) -> float | None:
        """End a micro-batch; at the end of an accumulation window update the weights.

        Returns:
            The gradient norm over all ranks before clipping at the end of a window, else None.
        """
        if not self.engine.is_gradient_accumulation_boundary():
            self.engine.step()
            return None
        norm = self._unsharded_grad_norm()
        self.engine.step()
        if norm is None:
            norm = float(self.engine.get_global_grad_norm())
        return norm

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        return float(self.engine.get_lr()[0])

    @contextlib.contextmanager
    def inference(self) -> Any:
        """No gradient, no dropout, no gradient checkpointing inside."""
        self.engine.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.engine.train()

    def release_weights(self) -> None:
        """Give back what forwards without a backward may have fetched ahead; nothing below ZeRO-3."""
        if self.is_sharded:
            self.engine.empty_partition_cache()

    def held_parameters(self) -> tuple[int, int]:
        """Return (parameters this rank holds all the time, parameters of the model)."""
        held = total = 0
        for parameter in self.module.parameters():
            numel = getattr(parameter, "ds_numel", parameter.numel())
            total += numel
            kept_whole = not self.is_sharded or getattr(parameter, "ds_persist", False)
            held += numel if kept_whole else parameter.ds_tensor.numel()
        return held, total

    def _unsharded_grad_norm(self) -> float | None:
        """DeepSpeed tells no norm where it runs the plain optimizer (stage 0 in fp32): compute it here."""
        if self.zero_stage > 0 or hasattr(self.engine.optimizer, "_global_grad_norm"):
            return None
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(gradients))


def load_policy(spec: Spec, files: ModelFiles, communicator: Communicator, total_steps: int) -> Policy:
    """Load the weights, sharded from the start under ZeRO-3, and make the engine. A collective.

    Raises:
        HubUnreachable: the hub does not answer.
        ConfigurationError: the weights cannot be read, or trainer.deepspeed.config cannot work.
    """
    gpu = communicator.device.type == "cuda"
    text_config = files.config.get_text_config()
    config = deepspeed_config(
        spec, dtype=str(files.dtype).removeprefix("torch."), hidden_size=text_config.hidden_size, gpu=gpu
    )
    # from_pretrained shards while it loads as long as this object is alive.
    sharded_loading = HfDeepSpeedConfig(config)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            spec.model.name,
            revision=spec.model.revision,
            trust_remote_code=spec.model.trust_remote_code,
            dtype=files.dtype,
            attn_implementation=spec.model.attn_implementation,
        )
    except Exception as error:
        if is_outage(error):
            raise HubUnreachable("model.name", spec.model.name, error) from error
        if not isinstance(error, OSError | ValueError | ImportError):
            raise
        text = " ".join(str(error).split())
        raise ConfigurationError("model.name", f"{spec.model.name} cannot be loaded: {text}") from error
    del sharded_loading
    if spec.optimization.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    enable_scoring(model)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=make_optimizer(model, spec.optimization),
        lr_scheduler=lambda optimizer: make_scheduler(optimizer, spec.optimization, total_steps),
        config=config,
    )
    engine.train()
    return Policy(engine, spec.generation.temperature, spec.trainer.deepspeed.zero_stage)
