"""What /metrics shows after real requests, and that the dashboard asks for nothing else."""

from concurrent.futures import ThreadPoolExecutor

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


def test_rejects_by_cause(start, make_groups):
    server = start(max_request_tokens=50)
    with server.client() as client:
        client.score(make_groups((1, [60])))
        client.post("/v1/logprobs", content=b"{")
        client.post("/v1/logprobs", content=b"{}", headers={"Content-Type": "text/plain"})
        client.post("/v1/completions", json={"prompt": "text", "max_tokens": 5})
        causes = {
            cause: client.metric(f'grpo_reference_rejects_total{{cause="{cause}"}}')
            for cause in ("too_large", "invalid", "media_type", "queue_full")
        }
    assert causes == {"too_large": 1, "invalid": 2, "media_type": 1, "queue_full": 0}


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
