"""The reference at the start of a run: every rank reaches it, and it is the model that it should be."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch

from grpo_trainer.config import Settings
from grpo_trainer.distributed import Communicator
from grpo_trainer.reference.check import check_replicas, check_server, is_same_model
from grpo_trainer.reference.client import ReferenceClient
from grpo_trainer.reference.info import ReferenceInfo

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference server, as it was found at the start."""

    client: ReferenceClient
    is_initial_policy: bool
    """Whether it serves, by name, the model that training begins with."""
    dtype: str | None
    """What it computes in; None: it does not tell."""


def connect_reference(
    settings: Settings, communicator: Communicator, *, vocabulary_size: int, tokenizer: Any, dtype: torch.dtype
) -> Reference | None:
    """Reach the reference server from every rank, and check that it fits the policy; None with beta 0. A collective.

    Raises:
        AgreedFault: on all ranks, where one cannot reach it, or it does not fit.
    """
    if settings.reference_url is None:
        return None
    url, spec = settings.reference_url, settings.spec

    def connect() -> tuple[ReferenceClient, ReferenceInfo]:
        client = ReferenceClient(
            url,
            engine=settings.reference_engine,
            token=settings.token,
            token_file=settings.token_file,
            temperature=spec.generation.temperature,
            timeout_seconds=spec.reference.request_timeout_seconds,
            use_proxies=spec.reference.url is not None,  # the operator's own server is in the cluster
        )
        try:
            info = client.info()
            check_server(
                info,
                client,
                vocabulary_size=vocabulary_size,
                tokenizer=tokenizer,
                dtype=str(dtype).removeprefix("torch."),
                longest=spec.dataset.max_prompt_length + spec.generation.max_completion_length,
            )
        except BaseException:
            client.close()
            raise
        return client, info

    client, info = communicator.agree(connect)
    infos = communicator.gather(info)
    if spec.reference.sync is None:  # else each request names its version, and replicas may differ for a while
        communicator.agree(lambda: check_replicas(infos))
    if communicator.is_main:
        logger.info("reference: %s, version %s, at %s (%s)", info.model, info.version, url, settings.reference_engine)
    return Reference(client, is_same_model(info, spec), info.dtype)
