"""The routes for other trainers, asked by the clients these use: openai's own, and TRL's."""

import dataclasses

import httpx
import numpy as np
import openai
import pytest
import torch
from grpo_refserver import completions
from grpo_refserver import openai_schemas as schemas
from grpo_refserver.auth import TokenFile


def expected_logprobs(model, prompt: list[int], temperature: float = 1.0) -> list[float]:
    """Plain transformers, one row: log-probability of each token but the first."""
    row = torch.tensor([prompt])
    with torch.no_grad():
        logprobs = (model(row).logits[0].float() / temperature).log_softmax(-1)
    return logprobs[:-1].gather(1, row[0, 1:, None])[:, 0].tolist()


def make_prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 320, length).tolist() for length in lengths]


@pytest.fixture
def ask(start, request):
    """An openai client of a server."""
    server = start()
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="any", max_retries=0) as client:
        yield client


def given(choice, prompt: list[int]) -> list[float]:
    """The log-probabilities of the given tokens, as trainers read them."""
    entries = choice.prompt_logprobs
    assert entries[0] is None
    return [entry[str(token)]["logprob"] for entry, token in zip(entries[1:], prompt[1:], strict=True)]


@pytest.mark.parametrize("temperature", [None, 0, 0.5, 1.7])
def test_values_equal_full_logits(ask, model, temperature):
    prompt_of_all, *others = make_prompts(30, 4, 7, 1, 12)
    prompts = [prompt_of_all, [5], *[prompt_of_all + other for other in others], *others]
    answer = ask.completions.create(
        model=ask.models.list().data[0].id,
        prompt=prompts,
        max_tokens=1,
        temperature=temperature,
        extra_body={"prompt_logprobs": 0},
    )
    for index, (prompt, choice) in enumerate(zip(prompts, answer.choices, strict=True)):
        assert choice.index == index
        assert (choice.text, choice.finish_reason) == ("", "length")
        np.testing.assert_allclose(
            given(choice, prompt), expected_logprobs(model, prompt, temperature or 1.0), atol=5e-6, rtol=5e-6
        )
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(map(len, prompts))
    assert answer.system_fingerprint == "base"
    schemas.Completion.model_validate(answer.model_dump())


def test_prompts_of_one_request_share_their_prefix(start):
    server = start()
    with server.client() as client:
        prefix, *ends = make_prompts(60, *[5] * 8)
        body = {"prompt": [prefix + end for end in ends], "max_tokens": 0, "prompt_logprobs": 0}
        assert client.post("/v1/completions", json=body).status_code == 200
        assert client.metric("grpo_reference_tokens_total") == 60 + 60 + 8 * 5


def test_prompts_of_a_model_that_is_scored_in_rows_are_rows(start):
    server = start()
    engine = server.service.worker.engine
    engine.info = dataclasses.replace(engine.info, shares_prompts=False)
    with server.client() as client:
        prefix, *ends = make_prompts(60, *[5] * 8)
        body = {"prompt": [prefix + end for end in ends], "max_tokens": 0, "prompt_logprobs": 0}
        assert client.post("/v1/completions", json=body).status_code == 200
        assert client.metric("grpo_reference_tokens_total") == 8 * 65


def test_log_and_metrics_say_what_the_client_is_told(start, caplog):
    with caplog.at_level("INFO"), start().client() as client:
        body = {"prompt": [[1], [2, 320]], "max_tokens": 0, "prompt_logprobs": 0}
        assert client.post("/v1/completions", json=body).status_code == 400
        assert client.metric('grpo_reference_requests_total{status="400"}') == 1
        body = {"token_ids": [2, 320], "sampling_params": {"max_tokens": 1, "prompt_logprobs": 0}}
        assert client.post("/inference/v1/generate", json=body).status_code == 400
    lines = [record for record in caplog.records if record.name == "grpo_refserver.requests"]
    assert [(line.status, line.field) for line in lines] == [(400, "prompt[1][1]"), (400, "token_ids[1]")]


def test_echo_with_logprobs_is_openais_own_form(ask, model):
    (prompt,) = make_prompts(9)
    answer = ask.completions.create(model=None, prompt=prompt, max_tokens=0, echo=True, logprobs=0)
    (choice,) = answer.choices
    assert choice.logprobs.tokens == [f"token_id:{token}" for token in prompt]
    assert choice.logprobs.token_logprobs[0] is None
    np.testing.assert_allclose(
        choice.logprobs.token_logprobs[1:], expected_logprobs(model, prompt), atol=5e-6, rtol=5e-6
    )
    assert choice.logprobs.text_offset[1] == len(choice.logprobs.tokens[0])
    assert choice.prompt_logprobs is None


def test_token_ids_are_given_back_on_demand(ask):
    answer = ask.completions.create(
        model=None, prompt=[[1, 2], [3]], max_tokens=0, extra_body={"prompt_logprobs": 0, "return_token_ids": True}
    )
    assert [choice.prompt_token_ids for choice in answer.choices] == [[1, 2], [3]]
    assert [choice.token_ids for choice in answer.choices] == [[], []]


def test_trls_client_scores_completions(start, model, monkeypatch):
    """TRL's own class, which asks for /health and /v1/models first."""
    from trl.generation import vllm_client

    monkeypatch.setattr(vllm_client, "is_vllm_available", lambda: True)  # it needs vllm for weight transfer alone
    server = start()
    client = vllm_client.VLLMClient(base_url=f"http://127.0.0.1:{server.port}", connection_timeout=30)
    prompt, *ends = make_prompts(20, 6, 9, 1)
    sequences = [prompt + end for end in ends]
    result = client.get_sequence_logprobs(sequences, [20] * 3, top_logprobs=0, temperature=1.3, chunk_size=2)
    for sequence, actual in zip(sequences, result["actual_logprobs"], strict=True):
        np.testing.assert_allclose(np.ravel(actual), expected_logprobs(model, sequence, 1.3)[19:], atol=5e-6, rtol=5e-6)


def test_prime_rls_teacher_route(start, model):
    """The request of prime-rl's ``compute_prefill_logprobs``, by the openai client's ``post`` as there."""
    server = start()
    (ids,) = make_prompts(25)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="EMPTY") as client:
        base = str(client.base_url).rstrip("/").removesuffix("/v1")
        sampling = {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "prompt_logprobs": 1}
        body = {"token_ids": ids, "sampling_params": sampling, "request_id": "abc"}
        response = client.post(f"{base}/inference/v1/generate", cast_to=httpx.Response, body=body)
    answer = schemas.Generated.model_validate_json(response.content)
    assert answer.request_id == "abc"
    assert answer.choices[0].token_ids == []
    assert answer.prompt_logprobs[0] is None
    values = [entry[str(token)].logprob for entry, token in zip(answer.prompt_logprobs[1:], ids[1:], strict=True)]
    np.testing.assert_allclose(values, expected_logprobs(model, ids), atol=5e-6, rtol=5e-6)


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        ({"max_tokens": 16}, "max_tokens", "generates none"),
        ({"max_tokens": None}, "max_tokens", "generates none"),
        ({"prompt_logprobs": None}, "prompt_logprobs", "generates none"),
        ({"prompt_logprobs": None, "logprobs": 0}, "prompt_logprobs", "echo with logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs", "no alternatives"),
        ({"prompt_logprobs": 1}, "prompt_logprobs", "no alternatives"),
        ({"n": 2}, "n", "leave n at 1"),
        ({"best_of": 2}, "best_of", "leave best_of at 1"),
        ({"stream": True}, "stream", "one piece"),
        ({"prompt": "once upon a time"}, "prompt", "does not tokenize"),
        ({"prompt": ["once", "upon"]}, "prompt", "does not tokenize"),
        ({"prompt": []}, "prompt", "none of them empty"),
        ({"prompt": [[1], []]}, "prompt", "none of them empty"),
        ({"prompt": [1, 320]}, "prompt[1]", "vocabulary of 320"),
        ({"prompt": [[1, 2], [1, 2, 3], [1, 2, 4, 320]]}, "prompt[2][3]", "vocabulary of 320"),
        ({"prompt": [[1, 2], [1] * 257]}, "prompt[1]", "limit is 256"),
        ({"prompt": [1, -1]}, "prompt", "list of token ids"),
        ({"temperature": 1e-9}, "temperature", "must be 0, which leaves the logits as they are, or from 0.001"),
        ({"temperature": -1}, "temperature", "must be 0, which leaves the logits as they are, or from 0.001"),
        ({"truncate_prompt_tokens": 5}, "truncate_prompt_tokens", "not a known field"),
        ({"temprature": 1}, "temprature", "not a known field"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(start, changes, field, remedy):
    body = {"prompt": [1, 2, 3], "max_tokens": 0, "prompt_logprobs": 0, **changes}
    with start().client() as client:
        response = client.post(
            "/v1/completions", json={name: value for name, value in body.items() if value is not None}
        )
    assert response.status_code == 400
    error = schemas.OpenAIError.model_validate_json(response.content).error
    assert (error.param, error.type) == (field, "invalid_request_error")
    assert remedy in error.message


def test_more_prompts_than_can_be_laid_out_are_refused(start, monkeypatch):
    monkeypatch.setattr(completions, "MAX_COMPLETIONS", 2)
    with start().client() as client:
        asked = {"max_tokens": 0, "prompt_logprobs": 0}
        assert client.post("/v1/completions", json={"prompt": [[1], [2]], **asked}).status_code == 200
        refused = client.post("/v1/completions", json={"prompt": [[1], [2], [3]], **asked})
    assert refused.status_code == 413
    assert refused.json()["error"]["message"] == "there are 3 prompts, this server takes 2 at a time: send fewer"


def test_errors_reach_the_openai_client_as_its_own(start, tmp_path):
    (tmp_path / "token").write_text("s3cret")
    server = start(token=TokenFile(tmp_path / "token"), max_request_tokens=50)
    url = f"http://127.0.0.1:{server.port}/v1"
    body = {"model": None, "prompt": [1, 2], "max_tokens": 0, "extra_body": {"prompt_logprobs": 0}}
    with openai.OpenAI(base_url=url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="Bearer"):
            client.completions.create(**body)
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
    with openai.OpenAI(base_url=url, api_key="s3cret", max_retries=0) as client:
        assert client.completions.create(**body).choices
        name = client.models.list().data[0].id
        assert client.models.retrieve(name).max_model_len == 256
        with pytest.raises(openai.NotFoundError, match="is served"):
            client.completions.create(**{**body, "model": "gpt-4"})
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("gpt-4")
        with pytest.raises(openai.APIStatusError, match="takes 50") as refused:
            client.completions.create(**{**body, "prompt": [1] * 51})
        assert refused.value.status_code == 413
        server.service.worker.drain()
        with pytest.raises(openai.InternalServerError, match="draining"):
            client.completions.create(**body)
        assert httpx.get(f"http://127.0.0.1:{server.port}/health").status_code == 503
