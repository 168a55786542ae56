import logging
from pathlib import Path

import pytest
from click.testing import CliRunner
from grpo_operator.kubernetes.main import OutageFilter, command
from grpo_operator.local.adapter import free_port


def record(message: str, level: int = logging.ERROR) -> logging.LogRecord:
    return logging.LogRecord("kopf", level, __file__, 1, message, None, None)


def test_an_outage_is_told_once_and_in_our_words():
    outage = OutageFilter()
    first = record("Request attempt #1/None failed; will retry: GET /x -> ClientConnectorError('refused')")
    assert outage.filter(first)
    assert first.getMessage() == "the API server does not answer; trying again: ClientConnectorError('refused')"
    assert first.levelname == "WARNING"
    assert not outage.filter(record("Request attempt #2/None failed; will retry: GET /x -> …"))


def test_other_lines_pass_as_they_are():
    outage = OutageFilter()
    other = record("something else failed")
    assert outage.filter(other)
    assert other.getMessage() == "something else failed"
    assert outage.filter(record("Request attempt #2/None succeeded", logging.DEBUG))


def test_a_bad_setting_ends_the_operator_with_its_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRPO_OPERATOR_WORKERS", "many")
    result = CliRunner().invoke(command)
    assert result.exit_code == 1
    assert "GRPO_OPERATOR_WORKERS is 'many': it must be a number" in result.output


@pytest.mark.parametrize("text", [None, "a: [", "[]", "apiVersion: v1\nkind: Config\n"])
def test_without_a_usable_kubeconfig_the_operator_says_so(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setenv("GRPO_OPERATOR_METRICS_PORT", str(free_port()))
    result = CliRunner().invoke(command)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert f"no cluster is known: KUBECONFIG ({file}) cannot be used" in result.output
