"""Reading manifests as YAML 1.2."""

from pathlib import Path

import pytest
from grpo_operator.manifest import ManifestError, dump, load, parse

JOB = """\
kind: GRPOJob
metadata: {name: demo}
spec:
  optimization:
    learningRate: %s
  rewards:
    functions:
      - function: accuracy
      - function: format
        weight: 0.5
"""


@pytest.mark.parametrize(("text", "value"), [("1e-6", 1e-6), ("1E-6", 1e-6), ("1.0e-6", 1e-6), ("3", 3), (".5", 0.5)])
def test_numbers_are_numbers(text: str, value: float):
    found = parse(JOB % text).data["spec"]["optimization"]["learningRate"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"), [("no", "no"), ("on", "on"), ("true", True), ("'1e-6'", "1e-6"), ("010", 10)]
)
def test_words_are_words(text: str, value: object):
    found = parse(JOB % text).data["spec"]["optimization"]["learningRate"]
    assert found == value
    assert type(found) is type(value)


def test_lines_are_those_of_the_file():
    manifest = parse(JOB % "1")
    assert manifest.line(("spec", "optimization", "learningRate")) == 5
    assert manifest.line(("spec", "rewards", "functions", 1, "weight")) == 10
    assert manifest.line(("spec", "rewards", "functions", 1, "nope")) == 9
    assert manifest.line(("nope",)) == 1


def test_other_objects_in_the_file_are_passed_over():
    text = "kind: Secret\nmetadata: {name: x}\n---\n" + JOB % "1" + "---\n"
    manifest = parse(text)
    assert manifest.data["metadata"]["name"] == "demo"
    assert manifest.line(("spec", "optimization", "learningRate")) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Secret\n---\njust words\n", "exactly one object of kind GRPOJob, but holds Secret, no object"),
        ("", "holds nothing"),
        ((JOB % "1") + "---\n" + (JOB % "1"), "holds GRPOJob, GRPOJob"),
        ("a: [1,\nb: 2", "x.yaml:2: not valid YAML"),
        ("a: 1\na: 2", "x.yaml:2: not valid YAML"),
        ("a: 1\n\tb: 2", "x.yaml:2: not valid YAML"),
        ("!!python/object:os.system {}", "holds object without kind"),
    ],
)
def test_a_file_without_one_job_is_refused_with_its_line(text: str, message: str):
    with pytest.raises(ManifestError) as error:
        parse(text, "x.yaml")
    assert message.replace("holds object", "holds an object") in str(error.value)


@pytest.mark.parametrize("text", ["spec: " + "[" * 5000, "a: " + "{b: " * 5000 + "1" + "}" * 5000])
def test_absurd_nesting_is_refused_with_a_sentence(text: str):
    with pytest.raises(ManifestError, match=r"^job\.yaml: is nested too deeply"):
        parse(text, "job.yaml")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ManifestError, match=r"nope\.yaml: cannot be read"):
        load(str(tmp_path / "nope.yaml"))


def test_what_is_written_reads_back():
    manifest = {"kind": "GRPOJob", "z": ["a" * 200, "no", "1e-6", "2026-01-01T00:00:00Z"], "a": {"x": 1e-6, "n": None}}
    text = dump([manifest])
    assert parse(text).data == manifest
    assert text.index("kind") < text.index("z:") < text.index("a:")
