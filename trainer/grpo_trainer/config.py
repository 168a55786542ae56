"""Environment and job (GRPO_CONFIG file, or flags) → one frozen Settings object. The environment wins, and says so."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from grpo_api import env
from grpo_api.rules import broken_rules
from grpo_api.v1alpha1 import Reference, Spec
from pydantic import ValidationError

from grpo_trainer.errors import ConfigurationError
from grpo_trainer.ranks import Ranks

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What is to be trained, from a GRPO_CONFIG file or from flags."""

    name: str
    spec: Spec
    reference_url: str | None = None
    output_dir: str | None = None


@dataclass(frozen=True)
class Settings:
    """All that a rank needs to know before it starts."""

    name: str
    spec: Spec
    ranks: Ranks
    output_dir: Path
    """Directory of this run's files."""
    attempt: int = 0
    reference_url: str | None = None
    """Base URL of the reference server; None where beta is 0."""
    reference_engine: str = "transformers"
    """The dialect it speaks: an engine of spec.reference.engine."""
    gather: bool | None = None
    """Gather the ZeRO-3 shards for generation; None: as the free memory allows."""
    token: str | None = field(default=None, repr=False)
    """Bearer token of the job's pods."""
    token_file: Path | None = None
    """Where the token was read: a Secret that is made again changes it."""
    progress_port: int | None = None
    """Port of /progress and /metrics on rank 0; None: not served."""
    termination_log: Path | None = None


def read_job(path: Path) -> Job:
    """Read a GRPO_CONFIG file: `{"metadata": {...}, "spec": {...}}`.

    Raises:
        ConfigurationError: it cannot be read, or a field of the spec is wrong; the field is named.
    """
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(env.GRPO_CONFIG, f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("spec"), dict):
        raise ConfigurationError(env.GRPO_CONFIG, f"{path} holds no object with a spec")
    spec = parse_spec(content["spec"])
    return Job(name=str(content.get("metadata", {}).get("name", "grpo")), spec=spec, reference_url=spec.reference.url)


def parse_spec(content: Mapping[str, Any]) -> Spec:
    """Check a spec against the API's models.

    Raises:
        ConfigurationError: naming the first wrong field, as a path below the spec, or with a rule's sentence.
    """
    try:
        spec = Spec.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigurationError(_dotted(first["loc"]), first["msg"]) from error
    # The API server's rules too: under torchrun or Slurm no API server has seen the spec.
    for location, rule in broken_rules(spec):
        raise ConfigurationError(_dotted(location), rule.message)
    return spec


def _dotted(location: tuple[str | int, ...]) -> str:
    return ".".join(map(str, location)) or "spec"


def load(job: Job, environ: Mapping[str, str]) -> Settings:
    """Merge a job with the environment.

    Raises:
        ConfigurationError: a value is wrong or one that is needed is missing; variable or field are named.
    """
    spec = job.spec
    ranks = Ranks.of(environ)
    check_world_size(spec, ranks.world_size)
    output_dir = _prefer(environ, env.GRPO_OUTPUT_DIR, job.output_dir)
    if not output_dir:
        raise ConfigurationError(env.GRPO_OUTPUT_DIR, "is not set: name the directory of the run's files")
    return Settings(
        name=job.name,
        spec=spec,
        ranks=ranks,
        output_dir=Path(output_dir).absolute(),
        attempt=_integer(environ, env.GRPO_ATTEMPT) or 0,
        reference_url=_reference_url(job, environ),
        reference_engine=_reference_engine(spec, environ),
        gather=_gather(spec, environ),
        token=_token(environ),
        token_file=Path(environ[env.GRPO_TOKEN_FILE]) if environ.get(env.GRPO_TOKEN_FILE) else None,
        progress_port=_integer(environ, env.GRPO_PROGRESS_PORT),
        termination_log=Path(environ[env.GRPO_TERMINATION_LOG]) if environ.get(env.GRPO_TERMINATION_LOG) else None,
    )


def check_world_size(spec: Spec, world_size: int) -> None:
    """Refuse to train with another number of ranks than the spec's: batch sizes would silently differ."""
    if world_size != spec.world_size:
        raise ConfigurationError(
            "trainer.replicas",
            f"{world_size} ranks were started, but the spec says trainer.replicas {spec.trainer.replicas} × "
            f"trainer.processesPerPod {spec.trainer.processes_per_pod} = {spec.world_size}: start that many, or "
            "change the spec",
        )


def _reference_url(job: Job, environ: Mapping[str, str]) -> str | None:
    if not job.spec.uses_reference:
        return None
    url = _prefer(environ, env.REF_MODEL_URL, job.reference_url)
    if not url:
        raise ConfigurationError(
            env.REF_MODEL_URL,
            f"is not set, but optimization.beta is {job.spec.optimization.beta}: give the reference server's URL "
            "(ref_model_url), or set optimization.beta to 0",
        )
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(env.REF_MODEL_URL, f"{url!r} does not start with http:// or https://")
    return url.rstrip("/")


def _reference_engine(spec: Spec, environ: Mapping[str, str]) -> str:
    engine = _prefer(environ, env.REF_MODEL_ENGINE, spec.reference.engine)
    engines = get_args(Reference.model_fields["engine"].annotation)
    if engine not in engines:
        raise ConfigurationError(env.REF_MODEL_ENGINE, f"is {engine!r}: it must be one of {', '.join(engines)}")
    return str(engine)


def _gather(spec: Spec, environ: Mapping[str, str]) -> bool | None:
    ours = spec.generation.ds3_gather_for_generation
    text = _prefer(environ, env.DS3_GATHER_FOR_GENERATION, None if ours is None else env.gather_flag(ours))
    try:
        return env.parse_gather_flag(text or "auto")
    except ValueError as error:
        raise ConfigurationError(env.DS3_GATHER_FOR_GENERATION, str(error)) from error


def _token(environ: Mapping[str, str]) -> str | None:
    path = environ.get(env.GRPO_TOKEN_FILE)
    if not path:
        return None
    try:
        return Path(path).read_text().strip() or None
    except OSError as error:
        raise ConfigurationError(env.GRPO_TOKEN_FILE, f"{path} cannot be read: {error}") from error


def _prefer(environ: Mapping[str, str], name: str, configured: str | None) -> str | None:
    """The variable's value where it is set and not empty, else the configured one."""
    value = environ.get(name) or None
    if value is not None and configured is not None and value != configured:
        logger.info("%s=%s from the environment is used, not %s", name, value, configured)
    return value if value is not None else configured


def _integer(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise ConfigurationError(name, f"{text!r} is not a whole number of 0 or more")
    return number
