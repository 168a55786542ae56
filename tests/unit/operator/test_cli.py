"""`grpo`: commands, their exit status and what they print. Each runs in its own process, as a user's would."""

import subprocess
import sys
from pathlib import Path

import pytest
from grpo_operator.manifest import parse
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
QUICKSTART = str(ROOT / "examples" / "quickstart.yaml")


def grpo(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grpo_operator.cli", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=ROOT)


def test_help_lists_the_commands_without_importing_them():
    code = "import sys; from grpo_operator.cli import main; main(['--help'], standalone_mode=False); "
    code += "print([m for m in ('kopf', 'pydantic', 'rich', 'cel', 'kubernetes', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    for command in ("run", "validate", "render", "crd", "operator", "evaluate"):
        assert f"\n  {command} " in done.stdout
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("command", ["run", "validate", "render", "crd", "operator"])
def test_every_command_explains_itself(command: str):
    done = grpo(command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout
    assert len(done.stdout.splitlines()) > 5


def test_validate_says_yes_and_no():
    assert grpo("validate", QUICKSTART).returncode == 0
    text = Path(QUICKSTART).read_text().replace("numGenerations: 8", "numGeneration: 8")
    done = grpo("validate", "-", stdin=text)
    assert done.returncode == 1
    assert "-:21: spec.generation.numGeneration: unknown field: did you mean numGenerations?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["validate", "render", "run"])
def test_a_file_without_a_job_ends_with_1_and_a_sentence(command: str, tmp_path: Path):
    file = tmp_path / "x.yaml"
    file.write_text("kind: Secret\n")
    done = grpo(command, str(file))
    assert done.returncode == 1
    assert "must hold exactly one object of kind GRPOJob" in done.stderr
    assert "Traceback" not in done.stderr


def test_render_prints_the_children_and_no_token():
    first, second = grpo("render", QUICKSTART, "-n", "team"), grpo("render", QUICKSTART, "-n", "team")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    objects = list(YAML(typ="safe").load_all(first.stdout))
    kinds = {each["kind"] for each in objects}
    assert {"Secret", "ConfigMap", "Service", "Deployment", "Job", "NetworkPolicy"} <= kinds
    assert {each["metadata"]["namespace"] for each in objects} == {"team"}


def test_crd_is_the_models():
    done = grpo("crd")
    definition = YAML(typ="safe").load(done.stdout)
    assert definition["kind"] == "CustomResourceDefinition"
    assert definition["spec"]["names"]["shortNames"] == ["grpo"]


def test_a_suspended_job_is_not_run():
    text = parse(Path(QUICKSTART).read_text()).data
    assert "suspend" not in text["spec"]
    done = grpo("run", "-", stdin=Path(QUICKSTART).read_text().rstrip() + "\n  suspend: true\n")
    assert done.returncode == 1
    assert "spec.suspend is true" in done.stderr


@pytest.mark.parametrize("option", ["--output", "--result"])
def test_a_run_that_could_not_write_does_not_start(option: str, tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("in the way")
    arguments = {"--output": str(tmp_path / "runs"), option: str(file / "below")}
    done = grpo("run", QUICKSTART, *[word for pair in arguments.items() for word in pair])
    assert done.returncode == 1
    assert f"{option}: the " in done.stderr
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert "files:" not in done.stdout
