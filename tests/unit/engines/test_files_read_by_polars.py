"""Files of a dataset that Polars reads itself, and those that it leaves to us."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import open_store, options, scan_dataset
from kartothek_cube.api.dataset import read_table_arrow, store_dataframes_as_dataset
from kartothek_cube.errors import CorruptData, KeyNotFound

pl = pytest.importorskip("polars")


@pytest.fixture
def root(tmp_path):
    rows = [
        pa.table(
            {
                "p": [p] * 3,
                "q": [dt.date(2026, 1, p + 1)] * 3,
                "x": [1, 2, 3],
                "v1": [1.0, None, float("nan")],
                "v2": ["a", None, "é"],
            }
        )
        for p in range(6)
    ]
    store_dataframes_as_dataset(open_store(tmp_path), "ds", rows, partition_on=["p", "q"])
    return tmp_path


@pytest.fixture
def read_by_polars(monkeypatch):
    """The numbers of files that Polars has read in turn."""
    from kartothek_cube.engines import polars_scan

    found, original = [], polars_scan._read_bundles

    def watched(*arguments):
        for files, frame in original(*arguments):
            found.append(files)
            yield files, frame

    monkeypatch.setattr(polars_scan, "_read_bundles", watched)
    return found


def change(root: Path, func) -> None:
    """Write the third of the files anew."""
    file = sorted((root / "ds" / "table").rglob("*.parquet"))[2]
    pq.write_table(func(pq.ParquetFile(file).read()), file)


def with_type(column: str, data_type: pa.DataType):
    def changed(table: pa.Table) -> pa.Table:
        return table.set_column(table.schema.get_field_index(column), column, table[column].cast(data_type))

    return changed


def assert_same(root: Path, **settings) -> None:
    expected = pl.from_arrow(read_table_arrow("ds", open_store(root)))
    found = scan_dataset("ds", open_store(root), options=options(**settings)).collect()
    assert found.sort("p", "x").equals(expected.sort("p", "x"))
    assert found.schema == expected.schema


def test_polars_reads_plain_files(root, read_by_polars):
    assert_same(root)
    assert read_by_polars == [6]


def test_files_that_fit_into_the_memory_are_read_at_a_time(root, read_by_polars):
    assert_same(root, bytes_in_flight=800)
    assert sum(read_by_polars) == 6
    assert read_by_polars[0] == 1


@pytest.mark.parametrize(
    "func",
    [
        with_type("x", pa.int32()),
        with_type("v1", pa.float32()),
        lambda table: table.drop_columns(["x"]),
        lambda table: table.append_column("v3", table["x"]),
        lambda table: table.set_column(2, "v2", table["v2"].dictionary_encode()),
    ],
)
def test_files_of_another_schema_are_read_as_ever(root, func, read_by_polars):
    change(root, func)
    assert_same(root)
    assert read_by_polars == []


@pytest.mark.parametrize(
    "func",
    [
        with_type("v2", pa.large_string()),
        lambda table: table.select(table.column_names[::-1]),
        lambda table: table.append_column("p", table["x"]),
        lambda table: table.slice(0, 0),
    ],
)
def test_files_of_the_same_schema_in_other_forms_give_the_same_rows(root, func):
    change(root, func)
    assert_same(root)


def test_errors_are_ours(root):
    frame = scan_dataset("ds", open_store(root))
    change(root, with_type("x", pa.string()))
    with pytest.raises(CorruptData, match="'x'"):
        frame.collect()
    sorted((root / "ds" / "table").rglob("*.parquet"))[2].unlink()
    with pytest.raises(KeyNotFound, match="ds/table/p=2"):
        frame.collect()


def test_a_condition_on_partition_keys_leaves_whole_files(root, read_by_polars):
    frame = scan_dataset("ds", open_store(root))
    assert frame.filter(pl.col("p") >= 2, pl.col("q") < dt.date(2026, 1, 5)).collect()[
        "p"
    ].unique().sort().to_list() == [2, 3]
    assert read_by_polars == [2]
    assert frame.filter(pl.col("x") == 2).collect().height == 6
    assert read_by_polars == [2]


@pytest.mark.parametrize("text", ["a/b", "a b", "é", "a=b", ""])
def test_partition_values_that_are_quoted_in_paths_are_left_to_us(tmp_path, text, read_by_polars):
    store_dataframes_as_dataset(open_store(tmp_path), "ds", [pa.table({"p": [text], "x": [1]})], partition_on=["p"])
    assert scan_dataset("ds", open_store(tmp_path)).collect().to_dicts() == [{"p": text, "x": 1}]
    assert read_by_polars == []


def test_a_folder_above_the_store_is_no_partition(tmp_path):
    store = open_store(tmp_path / "p=7")
    store_dataframes_as_dataset(store, "ds", [pa.table({"p": [1], "x": [1]})], partition_on=["p"])
    assert scan_dataset("ds", store).collect().to_dicts() == [{"p": 1, "x": 1}]
