"""A short point of tests/sweep/reference_load.py: many clients, a SIGKILL and three reloads in the middle."""

import asyncio

import pytest

from tests.sweep.reference_load import run_load, verdict


@pytest.mark.timeout(900)
def test_right_once_or_refused(tmp_path):
    report = asyncio.run(run_load(tmp_path, seconds=25, clients=64))
    for row in report.table():
        print(row)
    assert verdict(report) == []
