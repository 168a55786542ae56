"""Every reason once, explained, and used."""

import ast
import re
from pathlib import Path

import grpo_operator
import pytest
from grpo_operator import reasons
from grpo_operator.state import Fault

PACKAGE = Path(grpo_operator.__file__).parent
CONSTANTS = {
    name: value for name, value in vars(reasons).items() if isinstance(value, str) and value in reasons.REASONS
}


def test_names_are_camel_case_and_constants_are_named_after_them():
    for constant, name in CONSTANTS.items():
        assert re.fullmatch(r"[A-Z][A-Za-z]{1,60}", name)
        assert constant.replace("_", "").lower() == name.lower()
    assert sorted(CONSTANTS.values()) == sorted(reasons.REASONS)


def test_every_reason_is_explained_and_has_a_remedy_where_something_is_wrong():
    for reason in reasons.REASONS.values():
        assert reason.meaning.endswith(".")
        assert not reason.remedy or reason.remedy[-1] in ".`"
        if reason.section in (reasons.MISSING, reasons.REFUSED):
            assert reason.remedy


def test_no_reason_is_spelled_outside_the_list():
    """Faults, events and decisions take their reason from the constants, never from a literal."""
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Fault", "Event"):
                position = 0 if node.func.id == "Fault" else 1
                literal = node.args[position] if len(node.args) > position else None
                if isinstance(literal, ast.Constant) and literal.value not in reasons.REASONS:
                    wrong.append(f"{path.name}:{node.lineno} {literal.value}")
    assert not wrong


def test_the_gravest_fault_is_shown_and_unknown_ones_last():
    faults = [Fault("SomethingNew", "?"), Fault("Unschedulable", "u"), Fault("MissingSecret", "s")]
    assert reasons.first(faults) == faults[2]
    assert reasons.first(faults[:2]) == faults[1]
    assert reasons.first([]) is None


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (403, 'jobs.batch "x" is forbidden: exceeded quota: gpus, requested: 1', "QuotaExceeded"),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged', "PodSecurityViolation"),
        (400, 'admission webhook "policy.example" denied the request: no', "AdmissionDenied"),
        (403, 'jobs.batch is forbidden: User "u" cannot create resource "jobs"', "Forbidden"),
        (422, 'Job.batch "x" is invalid: spec.template.spec', "InvalidChild"),
        (500, "etcdserver: request timed out", "ApiError"),
    ],
)
def test_refusals_are_told_apart(status: int, message: str, reason: str):
    assert reasons.refusal(status, message) == Fault(reason, message)


def test_the_page_has_every_reason_once():
    page = reasons.markdown()
    for name in reasons.REASONS:
        assert page.count(f"| `{name}` |") == 1
    assert "| `Training` |" in page.split("###")[1]


def test_every_reason_the_trainer_gives_is_explained():
    """Read from its source, since the operator's tests do not need torch."""
    folder = PACKAGE.parents[1] / "trainer" / "grpo_trainer"
    if not folder.is_dir():
        pytest.skip(f"the trainer's source is not at {folder}")
    words = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                words |= {word for statement in node.body for word in named_reason(statement)}
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("Fault", "Termination")
            ):
                given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
                words |= {word for value in given for word in texts(value)}
    assert {"ConfigurationError", "Crashed", "PeerLost", "RewardError", "Succeeded", "Superseded"} <= words
    assert words <= set(reasons.REASONS)


def named_reason(statement: ast.stmt) -> list[str]:
    """Return what a line of a class gives to `reason`, if it does."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    named = any(isinstance(target, ast.Name) and target.id == "reason" for target in targets)
    value = getattr(statement, "value", None)
    return texts(value) if named and value is not None else []


def texts(value: ast.expr) -> list[str]:
    """Return the words that an expression can become: a literal, or either of two."""
    if isinstance(value, ast.IfExp):
        return [*texts(value.body), *texts(value.orelse)]
    return [value.value] if isinstance(value, ast.Constant) and isinstance(value.value, str) else []
