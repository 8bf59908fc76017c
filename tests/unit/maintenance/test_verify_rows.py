from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.api.dataset import update_dataset_from_dataframes, verify_dataset
from kartothek_cube.api.serialization import CsvSerializer, ParquetSerializer
from kartothek_cube.core.maintenance.verify_checks import CellPass, distinct_index_values
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.damage import ROWS, UUID, data_keys, document, edit_file, found, put, put_table, verify, write


@pytest.fixture
def store():
    return MemoryStore()


@pytest.mark.parametrize("data", [b"", b"PAR1nonsensePAR1", b"nonsense"])
def test_a_file_that_cannot_be_read_is_found(store, data):
    write(store)
    key = data_keys(store)[0]
    store.put(key, data)
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.key) == ("error", "file-unreadable", key)
    assert found(store) == []


def test_a_file_of_which_the_pages_are_damaged_is_found(store):
    write(store, pa.table({"p": ["a"] * 5000, "v1": [i * 0.37 for i in range(5000)]}), index=[])
    key = data_keys(store)[0]
    data = bytearray(store.get(key))
    data[200:1200] = bytes(1000)
    store.put(key, bytes(data))
    assert found(store, deep=True) == [("error", "file-unreadable")]


def test_a_damaged_csv_file_is_found(store):
    write(store, df_serializer=CsvSerializer())
    store.put(data_keys(store)[0], b"nonsense")
    assert found(store, deep=True)[0] == ("error", "file-unreadable")


def test_columns_of_another_type_are_found(store):
    write(store, index=[])
    edit_file(
        store, data_keys(store)[0], lambda t: t.set_column(t.column_names.index("v1"), "v1", pa.array(["r", "s"]))
    )
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.column) == ("error", "file-types", "v1")


def test_an_indexed_column_of_another_type_is_said_once(store):
    write(store)
    edit_file(
        store, data_keys(store)[0], lambda t: t.set_column(t.column_names.index("i1"), "i1", pa.array(["r", "s"]))
    )
    assert found(store, deep=True) == [("error", "file-types")]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32()])
def test_narrower_columns_are_remarked(store, kind):
    write(store, index=[])
    for key in data_keys(store):
        edit_file(store, key, lambda t: t.set_column(t.column_names.index("x"), "x", t.column("x").cast(kind)))
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.column, finding.count) == ("info", "narrower-column", "x", 2)


def test_other_spellings_of_a_type_are_right(store):
    write(store, pa.table({"p": [1, 2], "v1": ["r", "s"]}), index=[])
    for key in data_keys(store):
        edit_file(store, key, lambda t: t.set_column(0, "v1", t.column("v1").cast(pa.large_string())))
    assert found(store, deep=True) == []


def test_surplus_and_lacking_columns_are_remarked(store):
    write(store)
    edit_file(
        store,
        data_keys(store)[0],
        lambda t: t.rename_columns(["z" if name == "v1" else name for name in t.column_names]),
    )
    assert found(store, deep=True) == [("info", "lacking-column"), ("info", "surplus-column")]


def test_row_labels_of_pandas_are_no_surplus_column(store):
    write(store)
    edit_file(store, data_keys(store)[0], lambda t: t.append_column("__index_level_0__", pa.array([0, 1])))
    assert found(store, deep=True) == []


def test_partition_columns_in_a_file_that_agree_are_right(store):
    write(store)
    edit_file(store, data_keys(store)[0], lambda t: t.append_column("p", pa.array(["a", "a"])))
    assert found(store, deep=True) == []


@pytest.mark.parametrize("values", [["a", "b"], [None, "a"]])
def test_partition_columns_in_a_file_that_contradict_its_path_are_found(store, values):
    write(store)
    edit_file(store, data_keys(store)[0], lambda t: t.append_column("p", pa.array(values)))
    (finding,) = verify(store, deep=True).findings
    assert (finding.severity, finding.check, finding.column) == ("warning", "partition-column-in-file", "p")
    assert finding.message.startswith("1 row ")


def test_partition_columns_of_another_type_in_a_file_are_found(store):
    write(store)
    edit_file(store, data_keys(store)[0], lambda t: t.append_column("p", pa.array([1, 2])))
    assert found(store, deep=True) == [("error", "file-types")]


def test_rows_that_a_file_gained_are_missed_by_the_index(store):
    write(store)
    edit_file(
        store,
        data_keys(store)[1],
        lambda t: pa.concat_tables([t, t.set_column(t.column_names.index("i1"), "i1", pa.array([99]))]),
    )
    report = verify(store, deep=True)
    assert [(f.check, f.column, f.label) for f in report.findings] == [
        ("index-values", "i1", list(document(store)["partitions"])[1])
    ]
    assert report.counts.rows == 4


def test_nulls_in_an_indexed_column_are_remarked(store):
    write(store, pa.table({"p": ["a", "a", "b"], "i1": [1, None, 2]}))
    assert found(store, deep=True) == [("info", "null-in-index-column")]
    assert found(store) == []


def test_a_partition_of_nulls_is_covered_by_no_index_and_right(store):
    write(store, pa.table({"p": ["a", "b"], "i1": [1, None]}))
    assert found(store) == [("info", "index-coverage")]
    assert found(store, deep=True) == [("info", "null-in-index-column")]


def test_large_files_are_read_in_pieces(store):
    rows = pa.table({"p": ["a"] * 200_000, "i1": [i % 7 for i in range(200_000)], "x": range(200_000)})
    write(store, rows, df_serializer=ParquetSerializer(chunk_size=10_000))
    report = verify_dataset(UUID, store, deep=True, options=options(bytes_in_flight=1, threads=2))
    assert (report.findings, report.counts.rows) == ((), 200_000)


def test_what_foreign_writers_leave_is_healthy(store):
    """A document without anything of ours: types are those of the schema file."""
    write(store)
    content = document(store)
    content["metadata"] = {"creation_time": "2024-05-01T10:30:00"}
    put(store, content)
    assert found(store, deep=True) == [("info", "foreign-dataset")]


def test_a_file_of_the_same_name_in_another_table_is_read_in_its_types(store):
    write(store, index=[])
    content = document(store)
    first = next(iter(content["partitions"].values()))
    put_table(store, "uuid/other/p=a/1.parquet", pa.table({"v2": ["r"]}))
    first["files"]["other"] = "uuid/other/p=a/1.parquet"
    store.put(document_key(UUID), b"")
    put(store, content)
    store.put(schema_key(UUID, "other"), store.get(schema_key(UUID)))
    checks = found(store, deep=True)
    assert ("warning", "foreign-commit") in checks
    assert ("info", "lacking-column") in checks


# --- history --------------------------------------------------------------------------------------


def test_replaced_files_are_kept_for_older_snapshots(store):
    write(store)
    old = data_keys(store)[0]
    update_dataset_from_dataframes([ROWS.slice(2)], store, UUID, delete_scope=[{"p": "a"}])
    report = verify(store, deep=True)
    assert report.clean
    assert [f.key for f in report.of("kept-for-snapshots")] == [old]


def test_a_file_that_only_history_names_and_that_is_gone_is_found(store):
    write(store, index=[])
    old = data_keys(store)[0]
    update_dataset_from_dataframes([ROWS.slice(2)], store, UUID, delete_scope=[{"p": "a"}])
    store.delete(old)
    assert found(store) == [("warning", "history-file")]


def test_a_commit_that_a_foreign_writer_overwrote_is_found(store):
    write(store, index=[])
    before = document(store)
    update_dataset_from_dataframes([ROWS], store, UUID)
    before["partitions"].popitem()
    put(store, before)
    checks = found(store)
    assert checks[:2] == [("warning", "foreign-commit"), ("warning", "lost-commit")]
    with pytest.warns(UserWarning, match="without commit ids"):
        update_dataset_from_dataframes([ROWS], store, UUID)
    assert ("warning", "lost-commit") in found(store)
    assert ("info", "foreign-between") in found(store)


# --- passes over rows -----------------------------------------------------------------------------


def passed(*pieces, columns=("x", "y")):
    cells = CellPass(list(columns))
    for piece in pieces:
        cells.add(pa.table(piece))
    return cells


def test_cells_that_are_sorted_across_pieces():
    cells = passed({"x": [1, 1], "y": ["a", "b"]}, {"x": [1, 2], "y": ["c", "a"]})
    assert (cells.is_sorted, cells.repeated, cells.nulls) == (True, 0, {})


def test_a_cell_that_is_repeated_across_pieces():
    cells = passed({"x": [1, 1], "y": ["a", "b"]}, {"x": [1], "y": ["b"]})
    assert (cells.is_sorted, cells.repeated, cells.example) == (True, 1, {"x": 1, "y": "b"})


def test_cells_that_are_not_sorted_across_pieces():
    cells = passed({"x": [2], "y": ["a"]}, {"x": [1], "y": ["b"]})
    assert not cells.is_sorted
    cells.count_all(pa.table({"x": [2, 1, 2], "y": ["a", "b", "a"]}))
    assert (cells.repeated, cells.example) == (1, {"x": 2, "y": "a"})


def test_nulls_of_cells_are_counted():
    assert passed({"x": [1.0, None, float("nan")], "y": ["a", "b", None]}).nulls == {"x": 2, "y": 1}


def test_zeros_are_one_value_and_nan_is_none():
    assert distinct_index_values(pa.array([0.0, -0.0, None, float("nan"), 1.5]), pa.float64()).to_pylist() == [0.0, 1.5]
