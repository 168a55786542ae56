"""The reference server's process: here a small program that ends as a grpo-refserver does that refuses to start."""

import sys
import time
from pathlib import Path

from grpo_operator import reasons
from grpo_operator.local.adapter import free_port
from grpo_operator.local.reference import ReferenceProcess
from grpo_operator.local.run_files import RunFiles
from grpo_operator.policies.startup_order import reference_failed
from grpo_operator.state import Reference, ReferenceTarget

from tests.unit.operator.world import make_job, observe

REFUSES = """
import os, sys
from pathlib import Path
from grpo_api.progress import Termination
from grpo_api.termination import write_termination
words = Termination(reason="ConfigurationError", message="model /models/nope does not exist", exit_code=64)
write_termination(words, Path(os.environ["GRPO_TERMINATION_LOG"]))
sys.exit(64)
"""
DEADLINE = 60.0


def end_of(script: str, tmp_path: Path) -> Reference:
    """Return what is observed once the program has ended."""
    job = make_job()
    files = RunFiles.of(tmp_path, job)
    files.prepare(job)
    # Left by an earlier run of the same folder: no word of this one.
    files.reference_termination_log.write_text('{"reason": "ConfigurationError", "message": "old", "exitCode": 64}')
    process = ReferenceProcess([sys.executable, "-c", script], {}, files, f"http://127.0.0.1:{free_port()}")
    process.apply(ReferenceTarget(1, ()))
    deadline = time.monotonic() + DEADLINE
    try:
        while time.monotonic() < deadline:
            process.tick()
            seen = process.observe()
            if seen.exit_code is not None:
                return seen
            time.sleep(0.02)
    finally:
        process.kill()
    raise AssertionError("the program did not end")


def test_the_last_words_of_a_reference_that_refuses_to_start_are_the_jobs(tmp_path: Path):
    failure = reference_failed(make_job(), observe(reference=end_of(REFUSES, tmp_path)))
    assert failure is not None
    assert failure.reason == reasons.REFERENCE_FAILED
    assert failure.message == "the reference server: model /models/nope does not exist"


def test_without_words_the_last_line_of_its_log_is_told(tmp_path: Path):
    seen = end_of("import sys; print('no such model'); sys.exit(64)", tmp_path)
    failure = reference_failed(make_job(), observe(reference=seen))
    assert failure is not None
    assert failure.message == "the reference server: it ended with exit code 64: no such model"
