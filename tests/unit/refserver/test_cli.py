import logging
import socket
from pathlib import Path

import pytest
from grpo_refserver import cli
from grpo_refserver.settings import Settings


def test_defaults_are_those_of_the_settings(monkeypatch):
    monkeypatch.delenv("GRPO_TOKEN_FILE", raising=False)
    values = vars(cli.parser().parse_args(["--model", "m"]))
    values.pop("log_level")
    assert Settings(**values) == Settings(model="m")


def test_defaults_are_those_of_the_api(monkeypatch):
    from grpo_api.v1alpha1.parts import Reference

    settings, reference = Settings(model="m"), Reference()
    for name in ("max_batch_tokens", "max_queued_tokens", "deterministic", "request_timeout_seconds"):
        assert getattr(settings, name) == getattr(reference, name), name


def test_the_token_file_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("GRPO_TOKEN_FILE", "/run/token")
    assert cli.parser().parse_args(["--model", "m"]).token_file == Path("/run/token")


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--model", "m", "--max-batch-tokens", "0"],
        ["--model", "m", "--request-timeout-seconds", "-1"],
        ["--model", "m", "--request-timeout-seconds", "inf"],
        ["--model", "m", "--port", "70000"],
        ["--model", "m", "--dtype", "int4"],
        ["--model", "m", "--max-batch", "5"],
    ],
)
def test_bad_flags_are_named(flags, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(flags)
    assert caught.value.code == 2
    assert (flags[-2] if len(flags) > 2 else "--model") in capsys.readouterr().err


def test_request_limits_follow_from_the_queue():
    assert Settings(model="m", max_queued_tokens=1000).request_tokens == 1000
    assert Settings(model="m", max_queued_tokens=1000, max_request_tokens=5000).request_tokens == 1000
    assert Settings(model="m", max_request_tokens=1000).request_bytes == 64 * 1024 + 16000


@pytest.fixture
def restored_logging():
    """The command line takes over the root logger: give it back."""
    root, ours = logging.getLogger(), logging.getLogger("grpo_refserver")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_settings_that_cannot_work_end_with_64_and_a_sentence(
    tmp_path, taken_port, capsys, model_path, restored_logging
):
    for flags, problem in [
        (["--model", str(tmp_path / "none"), "--port", "0"], "none: is the volume mounted?"),
        (["--model", "m", "--token-file", str(tmp_path / "none")], "cannot be read: No such file"),
        (["--model", "m", "--port", str(taken_port)], "Address already in use"),
        (["--model", str(model_path), "--port", "0", "--device", "cuda:9"], "torch sees no GPU"),
        (
            ["--model", str(model_path), "--port", "0", "--max-sequence-length", "257"],
            "--max-sequence-length 257 is above the model's max_position_embeddings 256",
        ),
    ]:
        assert cli.main([*flags, "--host", "127.0.0.1"]) == 64
        error = capsys.readouterr().err
        assert "cannot start: " in error
        assert problem in error
        assert "Traceback" not in error
