"""What /metrics shows after real requests, and that the dashboard asks for nothing else."""

from concurrent.futures import ThreadPoolExecutor

from grpo_refserver.auth import TokenFile

from tests.dashboard import exported, queried


def test_the_dashboard_asks_for_what_is_exported(start, make_groups):
    with start().client() as client:
        client.logprobs(make_groups((4, [4])))
        names = exported(client.get("/metrics").text)
    assert queried("grpo_reference_") - names == set()
    assert queried("process_") <= names


def test_shared_prompts_and_fill(start, make_groups):
    with start(max_batch_tokens=1000).client() as client:
        client.logprobs(make_groups((100, [5] * 8)))
        # A completion's last token is not computed.
        assert client.metric("grpo_reference_row_tokens_total") == 8 * 104
        computed = client.metric("grpo_reference_computed_tokens_total")
        assert computed in (100 + 8 * 4, 8 * 104), "shared, or in rows where that is cheaper for so small a model"
        assert client.metric("grpo_reference_batch_fill_sum") == computed / 1000
        assert client.metric("grpo_reference_wait_seconds_count") == 1


def test_rejects_by_cause(start, make_groups, tmp_path):
    server = start(max_request_tokens=50, versions_root=tmp_path)
    with server.client() as client:
        client.score(make_groups((1, [60])))
        client.post("/v1/logprobs", content=b"{")
        client.post("/v1/logprobs", content=b"{}", headers={"Content-Type": "text/plain"})
        client.post("/v1/completions", json={"prompt": "text", "max_tokens": 5})
        for version, path, status in [("a", None, 409), ("a", "/etc", 422), ("a", "missing", 503), ("base", "a", 422)]:
            response = client.score(make_groups((1, [1])), version=version, version_path=path)
            assert response.status_code == status, response.text
        causes = {
            cause: client.metric(f'grpo_reference_rejects_total{{cause="{cause}"}}')
            for cause in ("too_large", "invalid", "media_type", "queue_full", "version", "not_serving")
        }
    expected = {"too_large": 1, "invalid": 2, "media_type": 1, "queue_full": 0, "version": 4, "not_serving": 0}
    assert causes == expected


def test_requests_without_the_token_are_logged_and_only_scoring_is_counted(start, make_groups, tmp_path, caplog):
    (tmp_path / "token").write_text("right-token")
    server = start(token=TokenFile(tmp_path / "token"))
    with caplog.at_level("INFO"), server.client(Authorization="Bearer wrong-token") as client:
        assert client.score(make_groups((1, [1]))).status_code == 401
        assert client.post("/v1/reload", json={"version": "base"}).status_code == 401
        for path in ("/v1/info", "/v1/models", f"/v1/models/{'x' * 5000}"):
            assert client.get(path).status_code == 401
        assert client.metric('grpo_reference_requests_total{status="401"}') == 2
        assert client.metric('grpo_reference_rejects_total{cause="unauthorized"}') == 2
    lines = [record for record in caplog.records if record.name == "grpo_refserver.requests"]
    assert [line.route for line in lines][:4] == ["/v1/logprobs", "/v1/reload", "/v1/info", "/v1/models"]
    assert len(lines[4].route) == 128
    for line in lines:
        assert (line.levelname, line.status, line.field) == ("WARNING", 401, "Authorization")
        assert "-token" not in str(vars(line))


def test_the_age_of_the_oldest_waiting_request(start, make_groups):
    server = start()
    gate = server.hold()
    with server.client() as client, ThreadPoolExecutor(2) as pool:
        assert client.metric("grpo_reference_queue_age_seconds") == 0
        answers = [pool.submit(client.logprobs, make_groups((4, [4])))]
        assert gate.reached.wait(60)
        answers.append(pool.submit(client.logprobs, make_groups((5, [4]))))
        server.until(lambda: client.metric("grpo_reference_queue_age_seconds") > 0.05)
        gate.open()
        for answer in answers:
            answer.result(60)
        assert client.metric("grpo_reference_queue_age_seconds") == 0


def test_a_request_is_found_in_the_log_by_its_id(start, make_groups, caplog):
    with caplog.at_level("INFO"), start().client(**{"X-Request-ID": "rank-3.step-7"}) as client:
        response = client.score(make_groups((4, [4])))
        assert response.headers["x-request-id"] == "rank-3.step-7"
        (record,) = (one for one in caplog.records if one.name == "grpo_refserver.requests")
        assert (record.id, record.route, record.version) == ("rank-3.step-7", "/v1/logprobs", "base")
        assert record.wait_ms >= 0
        assert record.forward_ms >= 0
        strange = client.get("/healthz", headers={"X-Request-ID": 'a" b=c'})
        assert strange.headers["x-request-id"].isalnum(), "one of our own, as the client's would break the line"
