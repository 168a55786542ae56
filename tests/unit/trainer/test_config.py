"""Job and environment → settings: the environment wins and says so; whatever is wrong is named."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from grpo_api import env
from grpo_trainer.config import Job, load, read_job
from grpo_trainer.errors import ConfigurationError

from tests.unit.trainer.specs import minimal, spec

NO_REFERENCE = {"beta": 0.0}
OUT = {env.GRPO_OUTPUT_DIR: "/runs/job/uid"}


def job(**groups: object) -> Job:
    groups.setdefault("optimization", NO_REFERENCE)
    return Job("job", spec(**groups))


def test_defaults() -> None:
    settings = load(job(), OUT)
    assert (settings.attempt, settings.reference_url, settings.gather, settings.token) == (0, None, None, None)
    assert (settings.progress_port, settings.termination_log) == (None, None)
    assert settings.output_dir == Path("/runs/job/uid")
    assert (settings.ranks.rank, settings.ranks.world_size) == (0, 1)


def test_the_environment_wins_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    given = spec(reference={"url": "http://mine:8000"}, generation={"ds3GatherForGeneration": True})
    variables = OUT | {env.REF_MODEL_URL: "http://other:8000/", env.DS3_GATHER_FOR_GENERATION: "false"}
    settings = load(Job("job", given, "http://mine:8000", "/elsewhere"), variables)
    assert settings.reference_url == "http://other:8000"
    assert settings.gather is False
    assert settings.output_dir == Path("/runs/job/uid")
    assert len(caplog.records) == 3
    assert "REF_MODEL_URL=http://other:8000/ from the environment is used, not http://mine:8000" in caplog.text


def test_the_same_value_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = load(job(), OUT | {env.DS3_GATHER_FOR_GENERATION: "auto"})
    assert settings.gather is None
    assert not caplog.records


def test_beta_0_needs_and_takes_no_reference() -> None:
    assert load(job(), OUT | {env.REF_MODEL_URL: "http://other:8000"}).reference_url is None


def test_the_token_is_read_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-token\n")
    settings = load(job(), OUT | {env.GRPO_TOKEN_FILE: str(tmp_path / "token")})
    assert settings.token == "secret-token"
    assert settings.token_file == tmp_path / "token"
    assert "secret-token" not in repr(settings)


@pytest.mark.parametrize(
    ("variables", "field"),
    [
        ({}, env.GRPO_OUTPUT_DIR),
        (OUT | {env.GRPO_ATTEMPT: "first"}, env.GRPO_ATTEMPT),
        (OUT | {env.GRPO_PROGRESS_PORT: "-1"}, env.GRPO_PROGRESS_PORT),
        (OUT | {env.DS3_GATHER_FOR_GENERATION: "perhaps"}, env.DS3_GATHER_FOR_GENERATION),
        (OUT | {env.GRPO_TOKEN_FILE: "/not/there"}, env.GRPO_TOKEN_FILE),
        (OUT | {"WORLD_SIZE": "2"}, "trainer.replicas"),
        (OUT | {"WORLD_SIZE": "one"}, "WORLD_SIZE"),
        (OUT | {"RANK": "1"}, "RANK"),
    ],
)
def test_what_is_wrong_is_named(variables: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{field}: "):
        load(job(), variables)


def test_a_reference_is_asked_for_with_beta() -> None:
    with pytest.raises(ConfigurationError, match=r"REF_MODEL_URL.*optimization\.beta is 0\.04"):
        load(job(optimization={}), OUT)
    with pytest.raises(ConfigurationError, match="http://"):
        load(job(optimization={}), OUT | {env.REF_MODEL_URL: "localhost:8000"})


def test_a_job_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"metadata": {"name": "sorting"}, "spec": minimal(reference={"url": "http://r"})}))
    read = read_job(path)
    assert (read.name, read.reference_url, read.spec.model.name) == ("sorting", "http://r", "tiny")


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("{", env.GRPO_CONFIG),
        ("[]", env.GRPO_CONFIG),
        (json.dumps({"spec": minimal(trainer={"replicas": 0})}), r"trainer\.replicas"),
        (json.dumps({"spec": minimal(trainer={"replicass": 1})}), r"trainer\.replicass"),
    ],
)
def test_a_bad_job_file_is_named(tmp_path: Path, content: str, field: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=f"^{field}: "):
        read_job(path)


def test_the_environment_chooses_the_references_dialect() -> None:
    given = Job("job", spec(reference={"engine": "vllm", "url": "http://ref:8000"}), "http://ref:8000")
    assert load(given, OUT).reference_engine == "vllm"
    assert load(given, OUT | {env.REF_MODEL_ENGINE: "sglang"}).reference_engine == "sglang"
    with pytest.raises(ConfigurationError, match=r"^REF_MODEL_ENGINE: is 'tgi': it must be one of"):
        load(given, OUT | {env.REF_MODEL_ENGINE: "tgi"})
