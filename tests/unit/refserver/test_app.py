"""The API over real HTTP, with a tiny real model."""

import json
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from grpo_refserver.auth import TokenFile
from grpo_refserver.settings import Settings
from grpo_refserver.start_engine import start_engine
from grpo_refserver.worker import State
from grpo_scoring.groups import Group
from grpo_scoring.logprobs import completion_logprobs
from grpo_scoring.wire import JSON, MEDIA_TYPES, SAFETENSORS, decode_problem


def full_logits(model, groups: list[Group], temperature: float) -> np.ndarray:
    """Plain transformers: every row's whole logits, log-softmax in fp32."""
    values = []
    for group in groups:
        for completion in group.completions:
            row = torch.tensor([[*group.prompt.tolist(), *completion.tolist()]])
            with torch.no_grad():
                logprobs = (model(row).logits[0].float() / temperature).log_softmax(-1)
            first = len(group.prompt) - 1
            values += logprobs[range(first, row.shape[1] - 1), row[0, first + 1 :]].tolist()
    return np.array(values, dtype=np.float32)


def close(ours, theirs) -> None:
    np.testing.assert_allclose(ours, theirs, atol=1e-6, rtol=1e-6)


def problem(response: httpx.Response, status: int, field: str | None) -> str:
    """Checks an error's status, type and field; returns its sentence."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    read = decode_problem(status, response.content)
    assert read.field == field
    return read.detail


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_values_equal_full_logits(start, model, make_groups, media_type, temperature):
    groups = make_groups((20, [30, 1, 0, 12]), (1, [1]), (60, [5, 50]))
    with start(max_batch_tokens=128, head_chunk_tokens=16).client() as client:
        close(client.logprobs(groups, media_type, temperature=temperature), full_logits(model, groups, temperature))


def test_concurrent_ranks_get_their_own_answers(start, model, make_groups):
    server = start(max_batch_tokens=256)
    asked = [
        make_groups(*[(3 + rank, [5, 2 * rank, 9])] * (1 + rank % 3), seed=10 * rank + turn)
        for rank in range(8)
        for turn in range(4)
    ]

    def ask(number: int) -> np.ndarray:
        with server.client() as client:
            return client.logprobs(asked[number], MEDIA_TYPES[number % 2], temperature=0.5 + number % 2)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(len(asked))))
    for number, (groups, answer) in enumerate(zip(asked, answers, strict=True)):
        close(answer, completion_logprobs(model, groups, temperature=0.5 + number % 2).values)


def test_requests_that_wait_together_are_scored_together(start, make_groups):
    server = start()
    gate = server.hold()
    groups = make_groups((4, [4]))
    with server.client() as client, ThreadPoolExecutor(4) as pool:
        first = pool.submit(client.logprobs, groups)
        assert gate.reached.wait(60)
        others = [pool.submit(client.logprobs, groups) for _ in range(3)]
        server.until(lambda: client.metric("grpo_reference_queue_requests") == 3)
        assert client.metric("grpo_reference_queue_tokens") == 24
        gate.open()
        for answer in [first, *others]:
            answer.result(60)
        assert client.metric("grpo_reference_batch_seconds_count") == 2
        assert client.metric("grpo_reference_tokens_total") == 32
        assert client.metric("grpo_reference_queue_requests") == 0
        assert client.metric("grpo_reference_open_requests") == 0


def test_ranks_that_hold_parts_of_a_prompts_completions_share_it(start, model, make_groups, monkeypatch):
    """The overhead that makes sharing not worth while for a model as tiny as this one is left out."""
    monkeypatch.setattr("grpo_scoring.sharing._OVERHEAD", {"cpu": 0.0, "cuda": 0.0})
    server = start(max_batch_tokens=128)
    gate = server.hold()
    prompts = make_groups((60, [1]), (50, [1]))
    ranks = [
        [Group(prompt.prompt, make_groups((1, [5, 5]), seed=10 * rank + number)[0].completions)
         for number, prompt in enumerate(prompts)]
        for rank in range(4)
    ]  # fmt: skip
    with server.client() as client, ThreadPoolExecutor(5) as pool:
        first = pool.submit(client.logprobs, make_groups((4, [4])))
        assert gate.reached.wait(60)
        answers = [pool.submit(client.logprobs, groups) for groups in ranks]
        server.until(lambda: client.metric("grpo_reference_queue_requests") == 4)
        gate.open()
        first.result(60)
        for groups, answer in zip(ranks, answers, strict=True):
            close(answer.result(60), full_logits(model, groups, 1.0))
        assert client.metric("grpo_reference_batch_seconds_count") == 3, "each prompt in one batch, with all ranks'"


def test_deterministic_is_bit_identical_whatever_else_is_asked(start, make_groups):
    """Also where others ask about the same prompts, which could be computed together."""
    server = start(deterministic=True)
    groups = make_groups((20, [30, 7]), (5, [9, 9]))
    alike = [Group(group.prompt, make_groups((1, [8, 3]))[0].completions) for group in groups]
    with server.client() as client, ThreadPoolExecutor(8) as pool:
        alone = client.logprobs(groups).tobytes()
        others = [pool.submit(client.logprobs, make_groups((9, [40] * 4), seed=seed)) for seed in range(6)]
        others += [pool.submit(client.logprobs, alike) for _ in range(6)]
        crowded = [pool.submit(client.logprobs, groups) for _ in range(5)]
        assert {answer.result(60).tobytes() for answer in crowded} == {alone}
        for other in others:
            other.result(60)
        assert client.metric("grpo_reference_batch_seconds_count") == 2 + 6 + 12 + 10, "each group alone"


def test_health_answers_during_a_forward(start, make_groups):
    server = start()
    gate = server.hold()
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.logprobs, make_groups((4, [4])))
        assert gate.reached.wait(60)
        for path in ("/healthz", "/readyz", "/metrics", "/v1/info"):
            assert client.get(path).status_code == 200
        assert not answer.done()
        gate.open()
        assert len(answer.result(60)) == 4


def test_before_the_model_is_there_only_health_is_good(start, make_groups, model_path):
    gate = threading.Event()

    def slow():
        assert gate.wait(60)
        return start_engine(Settings(model=str(model_path)))

    server = start(load=slow, ready=False)
    try:
        with server.client() as client:
            assert client.get("/healthz").json() == {"status": "loading"}
            assert client.get("/readyz").status_code == 503
            assert client.get("/metrics").status_code == 200
            response = client.score(make_groups((1, [1])))
            assert "loading" in problem(response, 503, None)
            assert int(response.headers["retry-after"]) > 0
            gate.set()
            server.until(lambda: client.get("/readyz").status_code == 200)
            assert len(client.logprobs(make_groups((1, [1])))) == 1
    finally:
        gate.set()


def test_a_vanished_clients_work_is_dropped(start, make_groups):
    server = start()
    gate = server.hold()
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        stays = pool.submit(client.logprobs, make_groups((4, [4])))
        assert gate.reached.wait(60)
        with server.client() as leaver:
            leaver.timeout = httpx.Timeout(60, read=0.3)
            with pytest.raises(httpx.ReadTimeout):
                leaver.score(make_groups((50, [50])))
        server.until(lambda: client.metric("grpo_reference_queue_requests") == 0)
        gate.open()
        stays.result(60)
        client.logprobs(make_groups((4, [4])))
        assert client.metric("grpo_reference_tokens_total") == 16, "nothing of the one that left was scored"
        assert client.metric('grpo_reference_requests_total{status="499"}') == 1


def test_a_deadline_that_passes_is_answered_and_its_work_dropped(start, make_groups):
    server = start()
    gate = server.hold()
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        stays = pool.submit(client.logprobs, make_groups((4, [4])))
        assert gate.reached.wait(60)
        assert "0.2 s" in problem(client.score(make_groups((50, [50])), deadline_seconds=0.2), 504, "deadlineSeconds")
        assert client.metric("grpo_reference_queue_tokens") == 0
        gate.open()
        stays.result(60)
    short = start(request_timeout_seconds=0.2)
    gate = short.hold()
    with short.client() as client:
        assert "0.2 s" in problem(client.score(make_groups((4, [4])), deadline_seconds=50.0), 504, "deadlineSeconds")
        gate.open()


def test_a_full_queue_says_when_to_come_back(start, make_groups):
    server = start(max_queued_tokens=100)
    with server.client() as client, ThreadPoolExecutor(2) as pool:
        client.logprobs(make_groups((4, [4])))
        gate = server.hold()
        running = pool.submit(client.logprobs, make_groups((40, [40])))
        assert gate.reached.wait(60)
        waiting = pool.submit(client.logprobs, make_groups((40, [40])))
        server.until(lambda: client.metric("grpo_reference_queue_tokens") == 80)
        response = client.score(make_groups((20, [20])))
        assert "80 tokens wait" in problem(response, 429, "groups")
        assert 1 <= int(response.headers["retry-after"]) <= 60
        gate.open()
        for answer in (running, waiting):
            answer.result(60)
        client.logprobs(make_groups((20, [20])))


def test_the_token_guards_what_costs_and_nothing_else(start, make_groups, tmp_path):
    (tmp_path / "token").write_text("s3cret")
    server = start(token=TokenFile(tmp_path / "token"))
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        with server.client(**headers) as client:
            response = client.score(make_groups((1, [1])))
            assert "Bearer" in problem(response, 401, "Authorization")
            assert response.headers["www-authenticate"] == "Bearer"
            problem(client.get("/v1/info"), 401, "Authorization")
            for path in ("/healthz", "/readyz", "/metrics"):
                assert client.get(path).status_code == 200
    with server.client(Authorization="Bearer s3cret") as client:
        assert len(client.logprobs(make_groups((1, [1])))) == 1
        assert client.get("/v1/info").status_code == 200


def test_what_is_too_large_is_refused_before_it_is_read(start, make_groups):
    server = start(max_request_bytes=2000, max_request_tokens=50)
    with server.client() as client:
        assert "51 tokens" in problem(client.score(make_groups((1, [50]))), 413, "groups")
        assert "2000" in problem(client.score(make_groups((1, [1000]))), 413, "body")

        def endless():
            for _ in range(1000):
                yield b"x" * 100

        response = client.post("/v1/logprobs", content=endless(), headers={"Content-Type": SAFETENSORS})
        problem(response, 413, "body")
        assert len(client.logprobs(make_groups((1, [49])))) == 49

    # 1 GB is declared and nothing sent: the answer must not wait for it.
    import socket

    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw:
        head = (
            f"POST /v1/logprobs HTTP/1.1\r\nHost: x\r\nContent-Type: {SAFETENSORS}\r\nContent-Length: {10**9}\r\n\r\n"
        )
        raw.sendall(head.encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


def test_bad_bodies_are_named(start, make_groups):
    with start().client() as client:

        def post(body: bytes, media_type: str = JSON, **headers: str) -> httpx.Response:
            return client.post("/v1/logprobs", content=body, headers={"Content-Type": media_type, **headers})

        problem(post(b"{"), 400, "body")
        problem(post(b"\x08\x00"), 400, "body")
        problem(post(b"nothing", SAFETENSORS), 400, "body")
        problem(post(b'{"groups":[]}'), 422, "groups")
        one = {"groups": [{"prompt": [1], "completions": [[2]]}]}
        problem(post(json.dumps(one | {"temperature": 0}).encode()), 422, "temperature")
        problem(post(json.dumps(one | {"seed": 0}).encode()), 422, "seed")
        assert "vocabulary of 320" in problem(
            client.score([Group.of([1], [[2, 320]])]), 422, "groups[0].completions[0][1]"
        )
        assert "limit is 256" in problem(client.score(make_groups((200, [57]))), 422, "groups[0]")
        problem(post(b"{}", "text/plain"), 415, "Content-Type")
        problem(post(json.dumps(one).encode(), Accept="text/html"), 406, "Accept")
        problem(client.get("/v1/logprobs"), 405, None)
        problem(client.get("/nothing"), 404, None)


def test_another_version_is_refused_until_it_can_be_loaded(start, make_groups):
    with start(model_version="step-5").client() as client:
        assert "version step-9 is wanted, and this server loads no versions" in problem(
            client.score(make_groups((1, [1])), version="step-9", version_path="versions/9"), 409, "version"
        )
        response = client.score(make_groups((1, [1])), JSON, version="step-5")
        assert response.json()["version"] == "step-5"


def test_accept_chooses_the_answers_form(start, make_groups):
    with start().client() as client:
        body = json.dumps({"groups": [{"prompt": [1, 2], "completions": [[3], []]}]}).encode()
        for accept, expected in [
            (None, JSON),
            ("*/*", JSON),
            (f"{SAFETENSORS};q=0.9", SAFETENSORS),
            (f"text/html, {JSON}", JSON),
        ]:
            headers = {"Content-Type": f"{JSON}; charset=utf-8"} | ({"Accept": accept} if accept else {})
            response = client.post("/v1/logprobs", content=body, headers=headers)
            assert response.headers["content-type"] == expected
        assert set(client.post("/v1/logprobs", content=body, headers={"Content-Type": JSON}).json()) == {
            "logprobs",
            "model",
            "version",
        }


def test_info_is_what_a_trainer_compares(start, model_path):
    with start(deterministic=True, max_batch_tokens=99).client() as client:
        info = client.get("/v1/info").json()
    assert info["model"] == str(model_path)
    assert info["tokenizerHash"].startswith("sha256:")
    expected = {"engine": "transformers", "version": "base", "dtype": "float32", "device": "cpu", "vocabSize": 320}
    expected |= {"maxSequenceLength": 256, "maxBatchTokens": 99, "deterministic": True, "revision": None}
    assert info | expected == info


def test_a_failed_forward_is_one_requests_failure(start, make_groups, caplog):
    server = start()
    hook = server.service.worker.loaded.model.model.register_forward_pre_hook(lambda *_: 1 / 0)
    with server.client() as client:
        assert "ZeroDivisionError" in problem(client.score(make_groups((1, [1]))), 500, None)
        assert "scoring failed" in caplog.text
        hook.remove()
        assert len(client.logprobs(make_groups((1, [1])))) == 1
        server.service.worker.loaded.model.model.register_forward_hook(
            lambda module, inputs, output: setattr(output, "last_hidden_state", output.last_hidden_state * float("nan"))
        )
        assert "FloatingPointError" in problem(client.score(make_groups((1, [1]))), 500, None)


def test_a_lost_device_ends_the_server(start, make_groups):
    server = start()

    def lost(*_: object) -> None:
        raise torch.AcceleratorError("the device is gone")

    server.service.worker.loaded.model.model.register_forward_pre_hook(lost)
    with server.client() as client:
        problem(client.score(make_groups((1, [1]))), 500, None)
        server.until(lambda: server.service.state is State.FAILED)
        assert client.get("/healthz").status_code == 503
        assert "failed" in problem(client.score(make_groups((1, [1]))), 503, None)


def test_logs_hold_no_token_and_no_ids(start, tmp_path, caplog):
    (tmp_path / "token").write_text("s3cret-token")
    server = start(token=TokenFile(tmp_path / "token"))
    with caplog.at_level("DEBUG"), server.client(Authorization="Bearer s3cret-token") as client:
        client.logprobs([Group.of([271, 272], [[273]])])
        client.score([Group.of([271, 272], [[9999]])])
    # What we say, not the record's clock and thread numbers, in which any digits may stand.
    clock = {*vars(logging.makeLogRecord({})), "ms"}
    records = [
        str({key: value for key, value in vars(record).items() if key not in clock}) + record.getMessage()
        for record in caplog.records
        if record.name.startswith("grpo")
    ]
    assert len(records) >= 2
    for text in records:
        assert "s3cret" not in text
        assert "271" not in text


def test_the_openapi_page_needs_no_internet(start):
    with start().client() as client:
        page = client.get("/docs").text
        assert "://" not in page
        parts = re.findall(r'(?:src|href)="(/[^"]+)"', page)
        assert {Path(part).suffix for part in parts} >= {".js", ".css"}
        for part in parts:
            assert client.get(part).status_code == 200, part


def test_openapi_describes_both_forms(start):
    with start().client() as client:
        document = client.get("/openapi.json").json()
    route = document["paths"]["/v1/logprobs"]["post"]
    assert set(route["requestBody"]["content"]) == set(MEDIA_TYPES)
    assert {"200", "400", "401", "413", "422", "429", "503"} <= set(route["responses"])
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    for place in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert place in schemas
