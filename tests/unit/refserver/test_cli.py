import logging
import os
import signal
import socket
import subprocess
import sys
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
def restored_process():
    """The command line takes over the root logger and the signals: give them back."""
    handled = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    root, ours = logging.getLogger(), logging.getLogger("grpo_refserver")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    for number, handler in handled.items():
        signal.signal(number, handler)


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_settings_that_cannot_work_end_with_64_and_a_sentence(
    tmp_path, taken_port, capsys, model_path, restored_process
):
    for flags, problem in [
        (["--model", str(tmp_path / "none"), "--port", "0"], "none: is the volume mounted?"),
        (["--model", "m", "--token-file", str(tmp_path / "none")], "cannot be read: No such file"),
        (["--model", "m", "--port", str(taken_port)], "Address already in use"),
        (["--model", str(model_path), "--port", "0", "--device", "foo"], "--device foo is no device"),
        (["--model", "m", "--model-version", "a b"], "--model-version 'a b' must be 1 to 128 of A-Z"),
        (["--model", "m\t"], r"--model 'm\t' must be a name of 1 to 512 printable characters"),
        (["--model", "m" * 513], "--model 'mmm"),
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_signal_during_the_imports_ends_well(number, ranks, tmp_path):
    """torch's place is taken by a module whose import never ends; the launcher of ranks waits for such a process."""
    (tmp_path / "torch.py").write_text(
        "import signal, sys\nprint('importing', flush=True)\nwhile True: signal.pause()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "grpo_refserver.cli", "--model", "m", "--tensor-parallel-size", str(ranks)],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(ranks):
            assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert f"INFO ended before the start signal={number.name} exit_code=0\n" in errors
    assert "Traceback" not in errors


def test_help_lists_every_exit_code(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    codes = capsys.readouterr().out.partition("exit codes:")[2]
    for code in ("0 ", "2 ", "64 ", "75 ", "1 "):
        assert code in codes
