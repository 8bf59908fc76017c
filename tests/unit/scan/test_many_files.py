"""Rows that are found in many files at once are those of one file after the other."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from kartothek_cube import connect, options
from kartothek_cube.api.dataset import read_table_arrow, store_dataframes_as_dataset
from kartothek_cube.core.io import small_files
from kartothek_cube.core.io.reader import FileRequest, read_together
from kartothek_cube.core.scan import execute
from kartothek_cube.core.stores.local import LocalStore, MemoryStore

ROWS = pa.table({"p": [p for p in range(40) for _ in range(3)], "q": ["a", "b", "b"] * 40, "x": [1, 2, 3] * 40})


@pytest.fixture(scope="module", params=[["p"], ["q", "p"]], ids="/".join)
def store(request):
    made = MemoryStore()
    store_dataframes_as_dataset(made, "uuid", [ROWS], partition_on=request.param)
    return made


@pytest.mark.parametrize(
    "predicates",
    [
        [[("p", ">=", 0), ("x", "==", 2)]],
        [[("p", "==", 7)], [("x", "==", 2)]],
        [[("p", "!=", 7)], [("x", "==", 2)]],
        [[("p", "<", 20), ("x", "==", 2)], [("p", ">=", 20), ("x", "!=", 2)]],
        [[("p", "in", [3, 4, 5, 6, 7, 8, 9])]],
        [[("q", "==", "b"), ("x", ">", 1)], [("p", "==", 1), ("q", "==", "a")]],
        [[("p", "==", 100)], [("x", "==", 100)]],
    ],
)
@pytest.mark.parametrize("at_once", [0, 64], ids=["one by one", "together"])
def test_predicates_on_partition_columns_and_others(store, predicates, at_once, monkeypatch):
    asked = []
    monkeypatch.setattr(execute, "files_at_once", lambda *of: asked.append(of) or at_once)
    compare = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", ">": "__gt__", ">=": "__ge__"}

    def holds(row, column, op, value):
        return row[column] in value if op == "in" else getattr(row[column], compare[op])(value)

    rows = ROWS.to_pylist()
    expected = [row for row in rows if any(all(holds(row, *clause) for clause in some) for some in predicates)]
    found = read_table_arrow("uuid", store, predicates=predicates, columns=["p", "q", "x"])

    def key(row):
        return tuple(row.values())

    assert sorted(found.to_pylist(), key=key) == sorted(expected, key=key)


@pytest.fixture
def together(monkeypatch):
    """How many files are read together, each time."""
    found, original = [], execute.read_together
    monkeypatch.setattr(
        execute, "read_together", lambda store, files, *rest: found.append(len(files)) or original(store, files, *rest)
    )
    return found


@pytest.mark.parametrize(("threads", "most"), [(1, 20), (2, 10), (16, 0)])
def test_small_files_are_filtered_together_as_far_as_all_threads_have_work(
    tmp_path, together, only_fast, threads, most
):
    local = LocalStore(tmp_path, fsync=False)
    store_dataframes_as_dataset(local, "uuid", [ROWS], partition_on=["p"])
    asked = {"predicates": [[("x", "==", 2)]], "options": options(threads=threads)}
    found = read_table_arrow("uuid", local, columns=["p", "x"], **asked)
    assert found.to_pydict() == {"p": list(range(40)), "x": [2] * 40}
    assert max(together, default=0) == most


@pytest.mark.parametrize(("at_once", "is_alone"), [(64, True), (63, False)])
def test_where_little_is_decoded_no_thread_is_started(store, monkeypatch, at_once, is_alone):
    started, start = [], threading.Thread.start
    monkeypatch.setattr(execute, "files_at_once", lambda *_: at_once)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread) or start(thread))
    with options(threads=2):
        assert read_table_arrow("uuid", store, predicates=[[("x", "==", 2)]]).num_rows == 40
    assert (not started) == is_alone


def test_a_lazy_scan_begins_with_few_files(tmp_path, together, only_fast):
    local = LocalStore(tmp_path, fsync=False)
    store_dataframes_as_dataset(local, "uuid", [ROWS], partition_on=["p"])
    with connect(local, options=options(threads=1)) as connection:
        found = connection.sql("SELECT p FROM uuid WHERE x = 2 ORDER BY p").to_arrow_table()
    assert found.column("p").to_pylist() == list(range(40))
    assert together[0] < max(together) <= 20


def test_files_that_a_lazy_scan_reads_singly_are_read_in_threads(tmp_path, monkeypatch):
    readers, read = set(), execute.open_rows
    monkeypatch.setattr(execute, "open_rows", lambda *of: readers.add(threading.current_thread().name) or read(*of))
    local = LocalStore(tmp_path, fsync=False)
    store_dataframes_as_dataset(local, "uuid", [ROWS], partition_on=["p"])
    with connect(local, options=options(threads=2)) as connection:
        assert len(connection.sql("SELECT * FROM uuid").to_arrow_table()) == len(ROWS)
    assert readers
    assert all(name.startswith("kartothek_cube") for name in readers)


def test_large_files_are_filtered_one_by_one(tmp_path, together, only_fast, monkeypatch):
    monkeypatch.setattr(small_files, "_MAX_ROWS", 3)
    local = LocalStore(tmp_path, fsync=False)
    store_dataframes_as_dataset(local, "uuid", [ROWS], partition_on=["p"])
    assert read_table_arrow("uuid", local, predicates=[[("x", "==", 2)]], options=options(threads=1)).num_rows == 40
    assert not together


def test_files_of_a_remote_store_are_read_side_by_side(store, monkeypatch):
    """Finding out whether they have pages would take a request for each."""
    monkeypatch.setattr(execute, "stream_together", None)
    monkeypatch.setattr(MemoryStore, "local_path", lambda store, key: None)
    assert read_table_arrow("uuid", store, predicates=[[("x", "==", 2)]]).num_rows == 40


def test_predicates_that_no_row_satisfies():
    store = MemoryStore()
    metadata = store_dataframes_as_dataset(store, "uuid", [pa.table({"x": [1, 2]})])
    keys = [file for part in metadata.partitions.values() for file in part.files.values()]
    request = FileRequest("uuid", pa.schema([("x", pa.int64())]), ("x",), ())
    table, counts = read_together(store, [(key, {}) for key in keys], request, 10**6)
    assert (table.num_rows, counts) == (0, [0])
