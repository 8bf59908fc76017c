"""Processes that append at the same time, that are killed, and that read beside them: the short
forms of `make soak`.
"""

from __future__ import annotations

import pytest

from tests.robustness.soak.kills import run_kills
from tests.robustness.soak.processes import KINDS, run
from tests.robustness.soak.readers import run_readers
from tests.support.server_urls import needs, url_of_azure, url_of_s3
from tests.support.thoroughness import is_exhaustive


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_index_entries_of_all_processes_are_there(kind, tmp_path):
    report = run(kind, f"hfs://{tmp_path}", processes=3, appends=8)
    assert report.commits == 24


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_on_a_server_of_s3(kind, s3_process):
    assert run(kind, url_of_s3(s3_process), processes=3, appends=4).commits == 12


@pytest.mark.slow
def test_killed_writers_leave_what_they_acknowledged_and_nothing_that_cannot_be_removed(tmp_path):
    kills = 12 if is_exhaustive() else 5
    figures = run_kills(tmp_path, kills=kills, rounds=2)
    assert (figures["kills"], figures["temporary files"]) == (kills, 0)
    assert figures["acknowledged"] > 0


@pytest.mark.slow
def test_no_reader_beside_writers_of_four_datasets_sees_a_mixture(tmp_path):
    reads = 120 if is_exhaustive() else 60
    counts = run_readers(f"hfs://{tmp_path / 'store'}", tmp_path, reads=reads)
    assert counts["kills"] > 0
    assert counts["query"] > reads / 4


@pytest.mark.exhaustive
@pytest.mark.slow
def test_no_reader_sees_a_mixture_on_a_server_of_s3(s3_process, tmp_path):
    assert run_readers(url_of_s3(s3_process), tmp_path, reads=40)["query"] > 10


@pytest.mark.exhaustive
@pytest.mark.slow
@needs("azure.storage.blob")
def test_no_reader_sees_a_mixture_on_azurite(azure_process, tmp_path):
    assert run_readers(url_of_azure(azure_process), tmp_path, reads=40)["query"] > 10
