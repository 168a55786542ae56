"""Versions over real HTTP: loaded while the old one serves, swapped between batches, refused with a reason."""

import copy
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import safetensors.torch
from grpo_refserver.local_engine import LocalEngine
from grpo_scoring.groups import Group
from grpo_scoring.logprobs import completion_logprobs
from grpo_scoring.wire import SAFETENSORS, decode_answer, decode_problem

WAIT = 120


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "versions"
    path.mkdir()
    return path


@pytest.fixture
def groups(make_groups) -> list[Group]:
    return make_groups((20, [30, 1, 12]), (3, [9, 9]))


@pytest.fixture
def expected(model, root) -> Callable[[str, list[Group]], np.ndarray]:
    """Plain log-probabilities of a version, by name; no model is made, a server in this process may be making one."""
    models: dict[str, Any] = {}

    def score(version: str, groups: list[Group]) -> np.ndarray:
        if version not in models:
            loaded = copy.deepcopy(model)
            if version != "base":
                safetensors.torch.load_model(loaded, root / version / "model.safetensors")
            models[version] = loaded
        return completion_logprobs(models[version], groups).values

    return score


@pytest.fixture
def check(expected, root) -> Callable[..., None]:
    """Checks that an answer is the wanted version's, by its name and by its values."""

    def check(response: httpx.Response, version: str, groups: list[Group]) -> None:
        assert response.status_code == 200, response.text
        answer = decode_answer(response.content, SAFETENSORS, groups)
        assert answer.version == version
        np.testing.assert_allclose(answer.logprobs, expected(version, groups), atol=2e-6, rtol=2e-6)

    return check


@pytest.fixture
def ask(root) -> Callable[..., httpx.Response]:
    def ask(client, groups: list[Group], version: str, **fields: Any) -> httpx.Response:
        path = None if version == "base" else str(root / version)
        return client.score(groups, version=version, version_path=path, **fields)

    return ask


class HeldStaging:
    """Holds every staging before it begins, until it is let go."""

    def __init__(self) -> None:
        self.reached, self.go = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.go.wait(WAIT), "nobody let the staging go"


@pytest.fixture
def hold_staging(monkeypatch) -> Iterator[Callable[[], HeldStaging]]:
    held: list[HeldStaging] = []
    plain = LocalEngine.stage

    def hold() -> HeldStaging:
        gate = HeldStaging()
        held.append(gate)

        def stage(engine: LocalEngine, version: str, path: Path | None) -> Any:
            gate.wait()
            return plain(engine, version, path)

        monkeypatch.setattr(LocalEngine, "stage", stage)
        return gate

    yield hold
    for gate in held:
        gate.go.set()


def refused(response: httpx.Response, status: int, field: str) -> str:
    assert response.status_code == status, response.text
    problem = decode_problem(status, response.content)
    assert problem.field == field
    assert ("retry-after" in response.headers) is (status == 503)
    return problem.detail


def test_a_version_is_loaded_by_the_request_that_wants_it(start, root, make_version, groups, ask, check):
    make_version("step-5")
    with start(versions_root=root).client() as client:
        assert client.get("/v1/info").json()["versionsRoot"] == str(root)
        for version in ("base", "step-5", "step-5", "base"):
            check(ask(client, groups, version), version, groups)
            assert client.get("/v1/info").json()["version"] == version
            assert client.metric("grpo_reference_info") == 1, "one version is shown, not all there have been"
            assert f'version="{version}"' in client.get("/metrics").text
        assert client.metric('grpo_reference_version_loads_total{outcome="staged"}') == 2
        assert client.metric("grpo_reference_swaps_total") == 2


def test_a_loaded_version_is_known_by_its_name_alone(start, root, make_version, groups, ask, check):
    make_version("step-5")
    with start(versions_root=root).client() as client:
        check(ask(client, groups, "step-5"), "step-5", groups)
        shutil.rmtree(root / "step-5" / ".." / "step-5")
        assert client.score(groups, version="step-5").status_code == 200
        assert client.score(groups, version="step-5", version_path="gone").status_code == 200
        assert client.metric("grpo_reference_swaps_total") == 1


def test_the_old_version_serves_while_another_is_loaded(start, root, make_version, groups, ask, check, hold_staging):
    make_version("step-5")
    server = start(versions_root=root)
    gate = hold_staging()
    with server.client() as client, ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(ask, client, groups, "step-5") for _ in range(2)]
        assert gate.reached.wait(WAIT)
        server.until(lambda: client.metric("grpo_reference_queue_requests") == 2)
        for _ in range(3):
            check(ask(client, groups, "base"), "base", groups)
            check(client.score(groups), "base", groups)
        assert client.get("/readyz").status_code == 200
        assert not any(wait.done() for wait in waits)
        gate.go.set()
        for wait in waits:
            check(wait.result(WAIT), "step-5", groups)


def test_what_waited_for_the_old_version_goes_first(start, root, make_version, make_groups, ask, check, hold_staging):
    """The new version is staged already, and the model held: then old, new, old are asked for, in this order."""
    make_version("step-5")
    server = start(versions_root=root)
    held = hold_staging()
    asked = [make_groups((4, [4]), seed=seed) for seed in range(4)]
    with server.client() as client, ThreadPoolExecutor(4) as pool:
        assert ask(client, asked[0], "step-5", deadline_seconds=0.1).status_code == 504
        held.go.set()
        server.until(lambda: client.metric('grpo_reference_version_loads_total{outcome="staged"}') == 1)
        gate = server.hold()
        answers = [pool.submit(ask, client, asked[0], "base")]
        assert gate.reached.wait(WAIT)
        for number, version in enumerate(("base", "step-5", "base"), start=1):
            answers.append(pool.submit(ask, client, asked[number], version))
            server.until(lambda number=number: client.metric("grpo_reference_queue_requests") == number)
        gate.open()
        for groups, version, answer in zip(asked, ("base", "base", "step-5", "base"), answers, strict=True):
            check(answer.result(WAIT), version, groups)
        assert client.metric("grpo_reference_swaps_total") == 2
        assert client.metric("grpo_reference_batch_seconds_count") == 4, "the last one did not slip in before the swap"


def test_loading_begins_while_a_forward_runs(start, root, make_version, groups, ask, check, hold_staging):
    make_version("step-5")
    server = start(versions_root=root)
    held, gate = hold_staging(), server.hold()
    with server.client() as client, ThreadPoolExecutor(2) as pool:
        running = pool.submit(ask, client, groups, "base")
        assert gate.reached.wait(WAIT)
        wanted = pool.submit(ask, client, groups, "step-5")
        assert held.reached.wait(WAIT)
        held.go.set()
        gate.open()
        check(running.result(WAIT), "base", groups)
        check(wanted.result(WAIT), "step-5", groups)


def test_versions_wanted_at_once_are_never_mixed(start, root, make_version, make_groups, ask, check):
    versions = ["base", "step-1", "step-2"]
    for version in versions[1:]:
        make_version(version)
    server = start(versions_root=root, max_batch_tokens=64)
    asked = [make_groups((8, [5, 9]), (3, [7]), seed=seed) for seed in range(4)]

    def rank(number: int) -> None:
        with server.client() as client:
            for turn in range(4):
                version = versions[(number + turn) % 3]
                check(ask(client, asked[turn], version), version, asked[turn])

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(rank, number) for number in range(6)]:
            done.result(WAIT)
    with server.client() as client:
        assert 2 <= client.metric("grpo_reference_swaps_total") <= 24


def test_one_answer_is_of_one_version(start, root, make_version, make_groups, ask, check):
    """A request for whatever is loaded, over many batches, while another version comes."""
    make_version("step-5")
    server = start(versions_root=root, max_batch_tokens=16)
    many = make_groups(*[(5, [6, 4])] * 40)
    with server.client() as client, ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(client.score, many) for _ in range(4)]
        answers += [pool.submit(ask, client, many, version) for version in ("step-5", "base")]
        for answer in answers:
            response = answer.result(WAIT)
            check(response, decode_answer(response.content, SAFETENSORS, many).version, many)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: shutil.copy(path / "config.json", path / "model.safetensors"), "damaged or cut off"),
        (lambda path: (path / "model.safetensors").unlink(), "no weights"),
    ],
)
def test_a_bad_folder_is_refused_for_good_and_the_old_version_serves(
    start, root, make_version, groups, ask, check, spoil, why
):
    spoil(make_version("step-5"))
    with start(versions_root=root).client() as client:
        assert why in refused(ask(client, groups, "step-5"), 422, "versionPath")
        check(ask(client, groups, "base"), "base", groups)
        assert client.metric('grpo_reference_version_loads_total{outcome="bad"}') == 1
        assert client.metric("grpo_reference_swaps_total") == 0
        assert client.get("/readyz").status_code == 200


def test_what_a_request_may_not_name_is_refused(start, root, make_version, groups, ask, check, tmp_path):
    outside = tmp_path / "outside"
    shutil.copytree(make_version("step-5"), outside)
    with start(versions_root=root).client() as client:
        assert "where it lies" in refused(client.score(groups, version="step-9"), 409, "version")
        for path in (str(outside), "../outside"):
            problem = refused(client.score(groups, version="step-9", version_path=path), 422, "versionPath")
            assert "outside --versions-root" in problem
        problem = refused(client.score(groups, version="base", version_path=str(root / "step-5")), 422, "versionPath")
        assert "started with" in problem
        check(ask(client, groups, "base"), "base", groups)


def test_a_folder_not_visible_yet_is_for_later(start, root, make_version, groups, ask, check):
    with start(versions_root=root).client() as client:
        assert "(yet)" in refused(ask(client, groups, "step-5"), 503, "versionPath")
        make_version("step-5")
        check(ask(client, groups, "step-5"), "step-5", groups)


def test_only_those_who_named_the_bad_folder_are_refused(start, root, make_version, groups, ask, check, hold_staging):
    make_version("step-5")
    server = start(versions_root=root)
    gate = hold_staging()
    with server.client() as client, ThreadPoolExecutor(2) as pool:
        wrong = pool.submit(client.score, groups, version="step-5", version_path="nowhere")
        assert gate.reached.wait(WAIT)
        right = pool.submit(ask, client, groups, "step-5")
        server.until(lambda: client.metric("grpo_reference_queue_requests") == 2)
        gate.go.set()
        refused(wrong.result(WAIT), 503, "versionPath")
        check(right.result(WAIT), "step-5", groups)


def test_a_deadline_shorter_than_the_loading_is_met_by_the_next_try(
    start, root, make_version, groups, ask, check, hold_staging
):
    make_version("step-5")
    server = start(versions_root=root)
    gate = hold_staging()
    with server.client() as client:
        problem = refused(ask(client, groups, "step-5", deadline_seconds=0.2), 504, "deadlineSeconds")
        assert "step-5 was not loaded" in problem
        assert client.metric("grpo_reference_queue_tokens") == 0
        gate.go.set()
        check(ask(client, groups, "step-5"), "step-5", groups)
        assert client.metric('grpo_reference_version_loads_total{outcome="staged"}') == 1


def test_a_version_whose_clients_have_gone_is_not_swapped_in(
    start, root, make_version, groups, ask, check, hold_staging
):
    make_version("step-5")
    server = start(versions_root=root)
    gate = hold_staging()
    with server.client() as client:
        with server.client() as leaver:
            leaver.timeout = httpx.Timeout(60, read=0.3)
            with pytest.raises(httpx.ReadTimeout):
                ask(leaver, groups, "step-5")
        server.until(lambda: client.metric("grpo_reference_queue_requests") == 0)
        gate.go.set()
        server.until(lambda: client.metric('grpo_reference_version_loads_total{outcome="staged"}') == 1)
        check(client.score(groups), "base", groups)
        assert client.metric("grpo_reference_swaps_total") == 0


def test_replicas_and_their_successors_converge_by_what_is_asked_for(start, root, make_version, groups, ask, check):
    make_version("step-5")
    replicas = [start(versions_root=root) for _ in range(2)]
    for server in replicas:
        with server.client() as client:
            check(ask(client, groups, "step-5"), "step-5", groups)
    with start(versions_root=root).client() as restarted:
        assert restarted.get("/v1/info").json()["version"] == "base"
        check(ask(restarted, groups, "step-5"), "step-5", groups)


def test_a_started_version_has_its_own_name(start, root, make_version, model_path, groups, ask):
    path = make_version("step-9")
    with start(versions_root=root, model_version="step-5").client() as client:
        assert client.score(groups, version="step-9", version_path=str(path)).status_code == 200
        refused(client.score(groups, version="base"), 409, "version")
        before = client.score(groups, version="step-5")
        assert decode_answer(before.content, SAFETENSORS, groups).version == "step-5"


def test_a_draining_server_still_loads_what_it_has_accepted(
    start, root, make_version, groups, ask, check, hold_staging
):
    make_version("step-5")
    server = start(versions_root=root)
    gate = hold_staging()
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(ask, client, groups, "step-5")
        assert gate.reached.wait(WAIT)
        server.service.worker.drain()
        assert ask(client, groups, "base").status_code == 503
        gate.go.set()
        check(accepted.result(WAIT), "step-5", groups)


def test_the_real_process_loads_swaps_and_drains(launch, connect, root, make_version, make_groups, ask, check, until):
    make_version("step-5")
    server = launch("--versions-root", str(root), "--deterministic", "--grace-period-seconds", "100")
    server.until("ready")
    assert any("each prompt is computed once" in line for line in server.lines)
    groups = make_groups(*[(3, [4, 2])] * 200)
    with connect(server.port) as client, connect(server.port) as other, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(ask, client, groups, "step-5")
        until(lambda: other.metric("grpo_reference_open_requests") == 1)
        server.process.send_signal(signal.SIGTERM)
        check(accepted.result(WAIT), "step-5", groups)
    assert server.end() == 0
    assert any("version swapped version=step-5 before=base" in line for line in server.lines)
