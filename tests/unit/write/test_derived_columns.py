"""Partition columns that follow from a date: added to rows, columns like any other afterwards."""

from __future__ import annotations

import datetime as dt
import pickle

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import open_store
from kartothek_cube.api.dataset import (
    day,
    month,
    plan_table_scan,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
    year,
)
from kartothek_cube.errors import InvalidInput, UnknownColumn, Unsupported

DATES = [dt.date(1969, 12, 31), dt.date(2024, 5, 31), dt.date(2024, 6, 1)]
ROWS = pa.table({"x": DATES, "v1": [1, 2, 3]})


@pytest.fixture
def store():
    return open_store("hmemory://")


@pytest.mark.parametrize(
    ("column", "name", "values"),
    [
        (year("x"), "x_year", [1969, 2024, 2024]),
        (month("x"), "x_month", [dt.date(1969, 12, 1), dt.date(2024, 5, 1), dt.date(2024, 6, 1)]),
        (day("x"), "x_day", DATES),
    ],
)
@pytest.mark.parametrize("data_type", [pa.date32(), pa.timestamp("us"), pa.timestamp("ns")])
def test_rows_get_the_column(store, column, name, values, data_type):
    rows = ROWS.set_column(0, "x", ROWS["x"].cast(data_type))
    dataset = store_dataframes_as_dataset(store, "d", [rows], partition_on=[column])
    assert dataset.partition_keys == [name]
    assert read_table_arrow("d", store).sort_by("x")[name].to_pylist() == values
    assert verify_dataset("d", store, deep=True).ok


def test_conditions_on_the_source_open_the_files_of_their_months(store):
    store_dataframes_as_dataset(store, "d", [ROWS], partition_on=month("x"))
    assert "files=1 of 3" in repr(plan_table_scan("d", store, predicates=[[("x", ">=", dt.date(2024, 6, 1))]]))


def test_later_rows_get_it_by_the_same_argument_or_bring_it(store):
    store_dataframes_as_dataset(store, "d", [ROWS], partition_on=month("x"))
    update_dataset_from_dataframes([ROWS], store, "d", partition_on=month("x"))
    update_dataset_from_dataframes([read_table_arrow("d", store)], store, "d", partition_on=month("x"))
    update_dataset_from_dataframes([read_table_arrow("d", store).slice(0, 1)], store, "d")
    with pytest.raises(InvalidInput, match="x_month"):
        update_dataset_from_dataframes([ROWS], store, "d")
    assert len(read_table_arrow("d", store)) == 13


def test_a_frame_of_pandas_gets_it(store):
    frame = pd.DataFrame({"x": pd.to_datetime(["2024-05-31 23:59", "2024-06-01 00:00"]), "v1": [1, 2]})
    assert len(store_dataframes_as_dataset(store, "d", [frame], partition_on=["v1", month("x")]).partitions) == 2
    assert list(frame.columns) == ["x", "v1"]


@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        (pa.table({"v1": [1]}), UnknownColumn, r"month\('x'\).*no such column"),
        (pa.table({"x": ["2024-05-01"], "v1": [1]}), Unsupported, "is string"),
        (pa.table({"x": pa.array([0], pa.timestamp("us", "UTC")), "v1": [1]}), Unsupported, "Cast it to a date"),
        (ROWS.append_column("x_month", pa.array(DATES)), InvalidInput, "is not the month of 'x'"),
        (ROWS.append_column("x_month", pa.array(["a", "b", "c"])), InvalidInput, "is not the month of 'x'"),
        (pa.table({"x": pa.array([None], pa.date32()), "v1": [1]}), InvalidInput, "nulls in the partition columns"),
    ],
)
def test_unusable_rows_are_refused(store, rows, error, text):
    with pytest.raises(error, match=text):
        store_dataframes_as_dataset(store, "d", [rows], partition_on=month("x"))
    assert store.list(recursive=True).keys == []


def test_names_are_pickled_and_checked():
    column = pickle.loads(pickle.dumps(month("x")))
    assert (column, column.source, column.unit) == ("x_month", "x", "month")
    with pytest.raises(InvalidInput, match="takes the name of a column"):
        day(1)
