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
pytest.importorskip("polars.lazyframe.resolver", reason="older releases of Polars read no files themselves")


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
    from kartothek_cube.engines import polars as polars_scan

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
    assert read_by_polars == [1, 5]


def test_files_that_fit_into_the_memory_are_read_at_a_time(root, read_by_polars):
    assert_same(root, bytes_in_flight=8_000)
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
    assert read_by_polars == [1]


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
    assert read_by_polars == [1, 1]
    assert frame.filter(pl.col("x") == 2).collect().height == 6
    assert read_by_polars == [1, 1]


@pytest.mark.parametrize("text", ["a/b", "a b", "é", "a=b", ""])
def test_partition_values_that_are_quoted_in_paths_are_left_to_us(tmp_path, text, read_by_polars):
    store_dataframes_as_dataset(open_store(tmp_path), "ds", [pa.table({"p": [text], "x": [1]})], partition_on=["p"])
    assert scan_dataset("ds", open_store(tmp_path)).collect().to_dicts() == [{"p": text, "x": 1}]
    assert read_by_polars == []


def test_a_folder_above_the_store_is_no_partition(tmp_path):
    store = open_store(tmp_path / "p=7")
    store_dataframes_as_dataset(store, "ds", [pa.table({"p": [1], "x": [1]})], partition_on=["p"])
    assert scan_dataset("ds", store).collect().to_dicts() == [{"p": 1, "x": 1}]


def test_partition_values_of_any_length(tmp_path, read_by_polars):
    rows = pa.table({"p": ["DE", "United-Kingdom", "FR"], "x": [1, 2, 3]})
    store_dataframes_as_dataset(open_store(tmp_path), "ds", [rows], partition_on=["p"])
    found = scan_dataset("ds", open_store(tmp_path)).collect()
    assert sorted(found.select("p", "x").rows()) == [("DE", 1), ("FR", 3), ("United-Kingdom", 2)]
    assert sum(read_by_polars) == 3


def test_files_without_partitions_are_read_by_polars(tmp_path, read_by_polars):
    rows = [pa.table({"x": [i], "y": ["a"]}) for i in range(3)]
    store_dataframes_as_dataset(open_store(tmp_path), "ds", rows)
    assert sorted(scan_dataset("ds", open_store(tmp_path)).collect()["x"]) == [0, 1, 2]
    assert sum(read_by_polars) == 3


def test_files_of_numbers_are_read_together_from_the_first(tmp_path, read_by_polars):
    rows = [pa.table({"p": [i] * 9, "v": [0.5] * 9}) for i in range(5)]
    store_dataframes_as_dataset(open_store(tmp_path), "ds", rows, partition_on=["p"])
    assert scan_dataset("ds", open_store(tmp_path)).collect().height == 45
    assert read_by_polars == [5]


@pytest.mark.parametrize("first", [2_000, 0])
def test_frames_stay_within_the_memory_from_the_first(tmp_path, monkeypatch, first):
    from kartothek_cube.engines import polars as polars_scan

    text = "x" * 200
    rows = [pa.table({"p": [i] * 2_000, "v": [f"{n % 20:02}{text}" for n in range(2_000)]}) for i in range(12)]
    store_dataframes_as_dataset(open_store(tmp_path), "ds", rows, partition_on=["p"])
    file = min((tmp_path / "ds" / "table").rglob("*.parquet"))
    pq.write_table(pq.ParquetFile(file).read().slice(0, first), file)
    sizes, original = [], polars_scan._read_bundles

    def watched(*arguments):
        for files, frame in original(*arguments):
            sizes.append(frame.estimated_size())
            yield files, frame

    monkeypatch.setattr(polars_scan, "_read_bundles", watched)
    frame = scan_dataset("ds", open_store(tmp_path), options=options(bytes_in_flight=6_000_000)).collect()
    assert frame.height == 11 * 2_000 + first
    assert len(sizes) > 1
    assert max(sizes) <= 6_000_000 / 4


@pytest.mark.parametrize("name", ["^a.*$", "*"])
def test_names_of_columns_are_no_patterns(tmp_path, name):
    rows = pa.table({"ab": [1], name: [2], "b": [3]})
    store_dataframes_as_dataset(open_store(tmp_path), "ds", [rows])
    frame = scan_dataset("ds", open_store(tmp_path))
    kept = [place for place, column in enumerate(frame.collect_schema()) if column != "ab"]
    # By place: Polars 1.30 takes each name in a query as a pattern.
    assert frame.select(pl.nth(kept)).collect().to_dicts() == [{name: 2, "b": 3}]
