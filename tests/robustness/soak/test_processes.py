"""Processes that append at the same time, and processes that are killed: the short forms of `make
soak`.
"""

from __future__ import annotations

import pytest

from tests.robustness.soak.kills import run_kills
from tests.robustness.soak.processes import KINDS, run


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_index_entries_of_all_processes_are_there(kind, tmp_path):
    report = run(kind, f"hfs://{tmp_path}", processes=3, appends=8)
    assert report.commits == 24


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_on_a_server_of_s3(kind, s3_process):
    host = s3_process.endpoint.removeprefix("http://")
    url = (
        f"hs3://key:secret@{host}/{s3_process.new_bucket()}?is_secure=false&force_bucket_suffix=false&region=us-east-1"
    )
    assert run(kind, url, processes=3, appends=4).commits == 12


@pytest.mark.slow
def test_killed_writers_leave_what_they_acknowledged_and_nothing_that_cannot_be_removed(tmp_path):
    figures = run_kills(tmp_path, kills=12, rounds=2)
    assert (figures["kills"], figures["temporary files"]) == (12, 0)
    assert figures["acknowledged"] > 0
