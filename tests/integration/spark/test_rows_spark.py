"""Rows are deleted and merged by tasks: with the results of the eager verbs."""

from __future__ import annotations

import pandas as pd
import pytest

from kartothek_cube import open_store
from kartothek_cube.api.dataset import delete_rows, read_table, store_dataframes_as_dataset
from kartothek_cube.spark import delete_rows_spark

PARTS = [pd.DataFrame({"x": range(i, i + 10), "p": i // 20, "v1": 0.5}) for i in range(0, 60, 10)]


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path / "store")
    store_dataframes_as_dataset(store, "uuid", PARTS, partition_on=["p"], secondary_indices=["x"])
    return store


def test_rows_are_deleted_by_tasks(spark, store):
    where = [[("x", "<", 15)], [("x", "in", [30, 31])]]
    expected = delete_rows("uuid", store, where, dry_run=True)
    report = delete_rows_spark("uuid", store, where)
    assert (report.matched, report.deleted) == (expected.matched, expected.deleted) == (17, 17)
    assert (report.files_removed, report.files_rewritten, report.files_untouched) == (1, 2, 3)
    assert sorted(read_table("uuid", store)["x"]) == [*range(15, 30), *range(32, 60)]
