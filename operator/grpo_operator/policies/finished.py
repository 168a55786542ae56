"""The end: terminal and sticky. A job that Succeeded or Failed never runs again, whatever is deleted or edited."""

from grpo_api.progress import Termination
from grpo_api.v1alpha1 import Status

from grpo_operator.state import Attempt, Observed


def is_finished(status: Status) -> bool:
    """Whether the job has ended."""
    return status.phase in ("Succeeded", "Failed")


def succeeded(attempt: Attempt | None) -> bool:
    """Whether the attempt reached the target: every pod ended with 0."""
    return attempt is not None and attempt.finished == "Complete"


def last_words(attempt: Attempt) -> Termination | None:
    """Return what the trainer said at its successful end (rank 0's words, as long as its pod is there)."""
    told = [pod.termination for pod in sorted(attempt.pods, key=lambda pod: pod.index) if pod.termination]
    return next((words for words in told if words.model_path), next(iter(told), None))


def model_path(attempt: Attempt, observed: Observed) -> str | None:
    """Return where the trained model lies, from the termination message or the last progress."""
    words = last_words(attempt)
    if words is not None and words.model_path:
        return words.model_path
    return observed.progress.model_path if observed.progress else None
