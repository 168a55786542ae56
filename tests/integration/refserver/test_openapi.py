"""Every route against its own description: whatever fits it or does not, no 5xx, no hang, an answer as described."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import checks
from schemathesis.checks import load_all_checks

load_all_checks()
CHECKS = checks.CHECKS.get_by_names(
    [
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
        "unsupported_method",
    ]
)
SECONDS = 60
ROUTES = {
    ("POST", "/v1/logprobs"),
    ("GET", "/v1/info"),
    ("POST", "/v1/reload"),
    ("POST", "/v1/completions"),
    ("POST", "/inference/v1/generate"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("GET", "/health"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
}


@pytest.fixture(scope="module")
def document(server):
    return httpx.get(f"{server.url}/openapi.json", timeout=SECONDS).json()


@pytest.fixture(scope="module")
def described(server, document):
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=server.url)
    return schema


def test_every_route_is_tested(document):
    assert {(verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs} == ROUTES


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("verb", "path"), sorted(ROUTES))
def test_answers_are_as_described(described, verb, path):
    positive = described[path][verb].as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
    negative = described[path][verb].as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    seen = set()

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(positive | negative)
    def ask(case):
        response = case.call(timeout=SECONDS)
        seen.add(response.status_code)
        case.validate_response(response, checks=CHECKS)
        if response.status_code == 504:
            assert case.body["deadlineSeconds"] < SECONDS, "a client may have less patience than a forward takes"
        else:
            assert response.status_code < 500

    ask()
    print(f"{verb} {path}: {sorted(seen)}")
    assert 200 in seen or verb == "POST" or "{" in path, "valid bodies are seldom found by chance"
