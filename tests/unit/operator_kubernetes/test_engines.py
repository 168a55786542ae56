"""Reference pods of other engines: their servers under the restricted standard, with no token in the manifest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from grpo_operator.kubernetes.settings import Settings

from tests.unit.operator_kubernetes.test_render import environment, mounts, pod, reference

SETTINGS = Settings(vllm_image="vllm:1", sglang_image="sglang:1", reference_image="grpo/refserver:1")
ENGINES = ("vllm", "sglang")


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    only: dict[str, Any]
    (only,) = pod(manifest)["containers"]
    return only


@pytest.mark.parametrize(
    ("engine", "image"), [("transformers", "grpo/refserver:1"), ("vllm", "vllm:1"), ("sglang", "sglang:1")]
)
def test_each_engine_has_its_image(engine: str, image: str) -> None:
    assert container(reference(SETTINGS, reference={"engine": engine}))["image"] == image
    assert container(reference(SETTINGS, reference={"engine": engine, "image": "mine:2"}))["image"] == "mine:2"


@pytest.mark.parametrize("engine", ENGINES)
def test_restricted_though_the_images_run_as_root(engine: str) -> None:
    made = reference(SETTINGS, reference={"engine": engine})
    security = pod(made)["securityContext"]
    assert security["runAsNonRoot"]
    assert security["runAsUser"] == security["runAsGroup"] == 10001
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(made)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert environment(made)["USER"] == "grpo"
    assert {environment(made)[name] for name in ("HOME", "XDG_CACHE_HOME")} | {"/tmp", "/dev/shm"} <= set(mounts(made))


@pytest.mark.parametrize("engine", ENGINES)
def test_users_may_name_another_user_and_variables(engine: str) -> None:
    mine = {"securityContext": {"runAsUser": 2000}, "env": [{"name": "USER", "value": "me"}]}
    made = reference(SETTINGS, reference={"engine": engine, "pod": mine})
    assert pod(made)["securityContext"]["runAsUser"] == 2000
    assert environment(made)["USER"] == "me"


@pytest.mark.parametrize("engine", ENGINES)
def test_probes_ask_for_health(engine: str) -> None:
    made = container(reference(SETTINGS, reference={"engine": engine}))
    paths = {made[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths == {"/health"}


def test_vllm_takes_the_token_from_the_secret_whatever_users_set() -> None:
    mine = {"env": [{"name": "VLLM_API_KEY", "value": "mine"}]}
    made = reference(SETTINGS, reference={"engine": "vllm", "pod": mine})
    assert environment(made)["VLLM_API_KEY"] == {"secretKeyRef": {"name": "demo-token", "key": "token"}}
    assert container(made)["command"] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]


def test_sglang_reads_the_token_from_a_file() -> None:
    made = reference(SETTINGS, reference={"engine": "sglang"})
    shell, option, script, _ = container(made)["command"]
    assert (shell, option) == ("sh", "-c")
    assert "/run/grpo/token/token" in script
    assert script.endswith('"$@"')
    assert "--api-key" not in json.dumps(made)
