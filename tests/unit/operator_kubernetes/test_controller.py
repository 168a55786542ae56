"""What the controller remembers; what it does is in the integration tests, with a real API server."""

from typing import Any, cast

from grpo_api.progress import Progress
from grpo_operator.kubernetes.applied import Applied
from grpo_operator.kubernetes.controller import Controller
from grpo_operator.kubernetes.queue import Key
from grpo_operator.kubernetes.settings import Settings


def test_a_job_made_anew_under_the_same_name_starts_without_the_older_ones_progress():
    nothing = cast("Any", None)  # neither the API server nor rank 0 is asked here
    controller = Controller(nothing, nothing, Settings.from_environment({}), Applied())
    key = Key("lab", "demo")
    older = controller.memory(key, "uid-1")
    older.progress = Progress(attempt=0, step=7, total_steps=9, phase="training")
    assert controller.memory(key, "uid-1") is older
    assert controller.memory(key, "uid-2").progress is None
    assert controller.memory(key, "uid-1").progress is None
