"""Why an attempt ended: decided over all its pods, the gravest cause first.

A disruption comes first: its victims and their peers die of all kinds of things. A permanent exit code comes
before a crash, and a crash before 75, with which ranks end that merely lost a peer.
"""

import re
import signal
from datetime import datetime

from grpo_api.exit_codes import ExitCode, is_permanent
from grpo_api.progress import Termination
from grpo_api.v1alpha1 import Cause, LastTermination

from grpo_operator import reasons
from grpo_operator.state import Attempt, Fault, Pod

ORDER: tuple[Cause, ...] = ("Suspend", "Disruption", "Permanent", "Crash", "Retry")
"""Suspend stands first: once we end an attempt ourselves, what its pods die of tells nothing."""


def failed(attempt: Attempt) -> bool:
    """Whether the attempt cannot reach its end any more.

    Exit code 0 of some pods is no success: only all of them together are (the Job is Complete).
    """
    if attempt.finished is not None:
        return attempt.finished == "Failed"
    if deleted(attempt):
        # Its Job was deleted by someone else while pods still ran; with no pods left it is just made again.
        return bool(attempt.live)
    return any(_ended_badly(pod) for pod in attempt.pods)


def deleted(attempt: Attempt) -> bool:
    """Whether the attempt's Job is gone, or on its way, without having ended."""
    return not attempt.exists and attempt.finished is None


def find(attempt: Attempt, now: datetime) -> LastTermination:
    """Return why an attempt that has `failed` ended, as far as its pods tell by now."""
    found = [_of_pod(pod) for pod in attempt.pods if _ended_badly(pod) or _disrupted(pod)]
    if not found or deleted(attempt):
        found.append(_of_job(attempt))
    cause, fault = min(found, key=_gravity)
    return LastTermination(
        attempt=attempt.number, cause=cause, reason=fault.reason[:128], message=fault.message[:2048], time=now
    )


def gravest(recorded: LastTermination | None, found: LastTermination) -> LastTermination:
    """Return what to record: pods end one after the other, and vanish, so what was seen before still counts."""
    if recorded is None or recorded.attempt != found.attempt:
        return found
    old = (recorded.cause, Fault(recorded.reason, recorded.message))
    new = (found.cause, Fault(found.reason, found.message))
    return found.model_copy(update={"time": recorded.time}) if _gravity(new) < _gravity(old) else recorded


def _ended_badly(pod: Pod) -> bool:
    return not pod.live and pod.exit_code != ExitCode.SUCCEEDED


def _disrupted(pod: Pod) -> bool:
    return pod.disruption is not None and pod.exit_code != ExitCode.SUCCEEDED


def _gravity(found: tuple[Cause, Fault]) -> tuple[int, int]:
    cause, fault = found
    return ORDER.index(cause), reasons.order(fault)


def _of_pod(pod: Pod) -> tuple[Cause, Fault]:
    if pod.disruption:
        return "Disruption", pod.disruption
    if pod.oom_killed:
        return "Crash", Fault(reasons.OOM_KILLED, f"{pod.name} reached its memory limit and was killed")
    code = pod.exit_code
    cause: Cause = "Crash"
    if code == ExitCode.RETRY:
        cause = "Retry"
    elif code is not None and is_permanent(code):
        cause = "Permanent"
    told = pod.termination
    # A launcher whose rank said nothing calls every end Crashed: that is no word about this one.
    if told is not None and told.reason not in (reasons.SUCCEEDED, reasons.CRASHED):
        return cause, Fault(told.reason, f"{_speaker(pod, told)}: {told.message}")
    message = told.message if told is not None and told.reason == reasons.CRASHED else _describe(code)
    return cause, Fault(_WORDLESS.get(cause, reasons.CRASHED), f"{pod.name}: {message}")


def _speaker(pod: Pod, told: Termination) -> str:
    return f"rank {told.rank}" if told.rank is not None else pod.name


_WORDLESS: dict[Cause, str] = {"Permanent": reasons.PERMANENT_ERROR, "Retry": reasons.PEER_LOST}


def _describe(code: int | None) -> str:
    if code is None:
        return "ended without an exit code"
    if code > 128:
        try:
            return f"was ended by {signal.Signals(code - 128).name} (exit code {code})"
        except ValueError:
            pass
    return f"ended with exit code {code}"


def _of_job(attempt: Attempt) -> tuple[Cause, Fault]:
    """Return what the Job itself tells; its words are those of Kubernetes' podFailurePolicy messages."""
    if deleted(attempt):
        return "Disruption", Fault(reasons.DISRUPTED, f"the Job of attempt {attempt.number} was deleted")
    fault = attempt.failure or Fault(reasons.CRASHED, f"attempt {attempt.number} failed, and its pods are gone")
    if "DisruptionTarget" in fault.message:
        return "Disruption", Fault(reasons.DISRUPTED, fault.message)
    code = re.search(r"exit code (\d+)", fault.message)
    if code and is_permanent(int(code[1])):
        return "Permanent", Fault(reasons.PERMANENT_ERROR, fault.message)
    return "Crash", fault
