"""``POST /v1/reload`` over real HTTP."""

from pathlib import Path

import pytest
from grpo_refserver.auth import TokenFile
from grpo_scoring.wire import decode_problem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "versions"
    path.mkdir()
    return path


def refused(response, status: int, field: str) -> str:
    assert response.status_code == status, response.text
    problem = decode_problem(status, response.content)
    assert problem.field == field
    return problem.detail


def test_it_answers_when_the_version_serves(start, root, make_version, make_groups):
    path = make_version("step-5")
    with start(versions_root=root).client() as client:
        for body, staged in [
            ({"version": "base"}, 0),
            ({"version": "step-5", "versionPath": str(path)}, 1),
            ({"version": "step-5"}, 1),
            ({"version": "base", "deadlineSeconds": 100}, 2),
        ]:
            response = client.post("/v1/reload", json=body)
            assert (response.status_code, response.json()) == (200, {"version": body["version"]})
            assert client.get("/v1/info").json()["version"] == body["version"]
            assert client.metric('grpo_reference_version_loads_total{outcome="staged"}') == staged
        client.logprobs(make_groups((3, [3])))


def test_what_cannot_be_loaded_is_refused_as_in_a_scoring_request(start, root):
    with start(versions_root=root).client() as client:
        refused(client.post("/v1/reload", json={"version": "step-5"}), 409, "version")
        refused(client.post("/v1/reload", json={"version": "step-5", "versionPath": "/etc"}), 422, "versionPath")
        response = client.post("/v1/reload", json={"version": "step-5", "versionPath": "step-5"})
        refused(response, 503, "versionPath")
        assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ("{", 400, "body"),
        ("{}", 422, "version"),
        ('{"version": 5}', 422, "version"),
        ('{"version": "a b"}', 422, "version"),
        ('{"version": "a", "versionPath": ""}', 422, "versionPath"),
        ('{"version": "a", "deadlineSeconds": 0}', 422, "deadlineSeconds"),
        ('{"version": "a", "path": "b"}', 422, "path"),
        ('{"version": "a", "version_path": "b"}', 422, "version_path"),
    ],
)
def test_a_wrong_body_is_named(start, body, status, field):
    with start().client() as client:
        refused(client.post("/v1/reload", content=body, headers={"Content-Type": "application/json"}), status, field)


def test_it_is_guarded_and_takes_json_alone(start, tmp_path):
    (tmp_path / "token").write_text("s3cret")
    server = start(token=TokenFile(tmp_path / "token"))
    with server.client() as client:
        refused(client.post("/v1/reload", json={"version": "base"}), 401, "Authorization")
    with server.client(Authorization="Bearer s3cret") as client:
        refused(client.post("/v1/reload", content=b"x", headers={"Content-Type": "text/plain"}), 415, "Content-Type")
        assert client.post("/v1/reload", json={"version": "base"}).status_code == 200
