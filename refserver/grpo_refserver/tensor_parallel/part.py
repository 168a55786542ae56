"""What every rank has: its part of the model, which scores together with the others and is replaced by itself."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from transformers import AutoConfig
from transformers.distributed import DistributedConfig
from transformers.utils import cached_file

from grpo_refserver.engine import Refusal, Staged, VersionError
from grpo_refserver.local_engine import LocalEngine
from grpo_refserver.model import LoadedModel, Placement, load
from grpo_refserver.settings import Settings
from grpo_refserver.tensor_parallel.group import RankGroup
from grpo_refserver.tensor_parallel.head import spread_head
from grpo_refserver.tensor_parallel.plan import check_plan
from grpo_refserver.tensor_parallel.shards import read_shards, size_of, weights_of
from grpo_refserver.version_folder import version_folder
from grpo_refserver.version_weights import check_same_computation, reading_version, version_config

log = logging.getLogger(__name__)


class Part(LocalEngine):
    """One rank's part of a model. ``score`` is a collective: every rank calls it with the same groups.

    ``stage`` is not: it reads this rank's part of a version, and nothing else. ``swap`` copies it over the old one.
    """

    def __init__(self, loaded: LoadedModel, settings: Settings, mesh: DeviceMesh) -> None:
        super().__init__(loaded, settings)
        self._weights = weights_of(loaded.model)
        self._mesh = mesh
        here, whole = size_of(self._weights)
        log.info("part loaded", extra={"bytes": here, "share": f"{here / whole:.3f}"})

    @classmethod
    def load(cls, settings: Settings, group: RankGroup) -> Part:
        """Loads this rank's part, and takes part in the self-check and in the warm-up.

        Raises:
            ConfigurationError: the model cannot be spread so, or cannot be scored.
            HubUnreachable: the hub does not answer.
        """
        size = group.rank.size

        def arguments() -> Mapping[str, Any]:
            config = AutoConfig.from_pretrained(
                settings.model, revision=settings.revision, trust_remote_code=settings.trust_remote_code
            )
            check_plan(config, size)
            return {"distributed_config": DistributedConfig(tp_size=size, tp_plan="auto")}

        loaded = load(settings, Placement(group.device, arguments, spread_head))
        part = cls(loaded, settings, init_device_mesh("cpu", (size,)))
        part._warm_up()
        return part

    def stage(self, version: str, path: Path | None) -> Staged:
        """Reads this rank's part of a version into host memory, and checks it. Raises VersionError."""
        settings, begun = self._settings, time.monotonic()
        log.info("loading version", extra={"version": version, "path": path or "-"})
        if version == settings.model_version:
            source, revision = _start_folder(settings), settings.revision
        else:
            source, revision = version_folder(settings.versions_root, version, path), None
        with reading_version(str(source)):
            config = version_config(str(source), revision, self.info)
            check_same_computation(str(source), config, self.info)
            shards = read_shards(source, self._weights, self._mesh)
        log.info("version staged", extra={"version": version, "seconds": f"{time.monotonic() - begun:.1f}"})
        return Staged(version, shards)

    def swap(self, staged: Staged) -> None:
        """Copies the staged part over the one that serves."""
        for weight, shard in zip(self._weights, staged.payload, strict=True):
            weight.local.copy_(shard)
        self.info = dataclasses.replace(self.info, version=staged.version)


def _start_folder(settings: Settings) -> Path:
    """Where the model lies that the server started with: a path, or the hub's cache."""
    if Path(settings.model).is_dir():
        return Path(settings.model)
    try:
        config = cached_file(settings.model, "config.json", revision=settings.revision, local_files_only=True)
    except OSError as error:
        raise VersionError(f"{settings.model} is not in the hub's cache any more: {error}", Refusal.BAD) from error
    return Path(config).parent
