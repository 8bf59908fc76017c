"""A merge whose source is in files does what the same merge does with the source in memory."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube import open_store
from kartothek_cube.api.dataset import merge_dataset, read_table_arrow, store_dataframes_as_dataset
from kartothek_cube.core.rows.edits import MergeRows, MergeSource
from kartothek_cube.core.rows.merge import MergeFiles, SourceFiles, StagedSource, write_source

START = dt.datetime(2024, 1, 1)
KINDS = {
    "integer": (pa.int64(), lambda i: i - 40),
    "small": (pa.int8(), lambda i: i - 40),
    "float": (pa.float64(), lambda i: i / 2 - 20),
    "text": (pa.string(), lambda i: f"ä{i:03}"),
    "bytes": (pa.binary(), lambda i: bytes([i, 255])),
    "date": (pa.date32(), lambda i: dt.date(1969, 12, 1) + dt.timedelta(i)),
    "time": (pa.timestamp("us"), lambda i: START + dt.timedelta(microseconds=i)),
    "year": (pa.timestamp("us"), lambda i: 2**60 + i),
    "decimal": (pa.decimal128(10, 2), lambda i: Decimal(i) / 4),
}


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


def in_files(store, source, on, cuts, together=(), indexed=(), limit=2**20):
    """The source in files: one of them for each slice between two cuts, sorted by key."""
    written = []
    for begin, end in zip([0, *cuts], [*cuts, source.num_rows], strict=True):
        rows = source.slice(begin, end - begin).sort_by([(c, "ascending") for c in on])
        written.append(write_source(store, "uuid", "table/merge-1", MergeSource(rows, on), together, indexed))
    files = SourceFiles("uuid", source.schema, on, tuple(w.file for w in written))
    return StagedSource(store, files, tuple(written), limit)


def column(kind, numbers):
    data_type, value = KINDS[kind]
    plain = pa.int64() if kind == "year" else data_type
    return pa.array([None if i is None else value(int(i)) for i in numbers], plain).cast(data_type)


@pytest.mark.parametrize("deletes_others", [False, True])
@pytest.mark.parametrize("when_matched", ["update", "ignore", "delete"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_source_in_files_changes_what_one_in_memory_changes(store, kind, when_matched, deletes_others):
    random = np.random.default_rng(hash((len(kind), when_matched == "delete", deletes_others)) % 2**32)
    numbers = random.permutation(80)[:50]
    source = pa.table({"k": column(kind, numbers), "l": pa.array(numbers % 3), "v1": pa.array(numbers / 7)})
    found = [None if i % 9 == 0 else int(i) for i in random.integers(0, 80, 200)]
    rows = pa.table({"v1": [0.0] * 200, "k": column(kind, found), "l": [(i or 0) % 3 for i in found], "p": [5] * 200})
    on = ("k", "l")
    staged = in_files(store, source, on, [7, 30, 31])
    edit = MergeFiles(store, staged.files, when_matched, deletes_others, ("p",))
    expected = MergeRows(MergeSource(source, on), when_matched, deletes_others, ("p",))

    # As a file is searched: by the columns that are needed, then by all.
    some, other = edit.find(rows.select(on)), expected.find(rows.select(on))
    assert (some.matched, some.deleted, some.updated) == (other.matched, other.deleted, other.updated)
    assert some.matched > 50
    stored = pa.concat_tables([staged.files.read(store, file, ["v1"]) for file in staged.files.files])["v1"]
    assert sorted(stored.take(some.sources).to_pylist()) == sorted(source["v1"].take(other.sources).to_pylist())
    assert edit.apply(rows).kept.equals(expected.apply(rows).kept)


def test_the_ranges_of_a_source_leave_files_out(store):
    source = pa.table({"k": range(40), "v1": [0.5] * 40})
    staged = in_files(store, source, ("k",), [10, 20, 30])
    for file in staged.files.files[:2]:
        store.delete(file.key)
    edit = MergeFiles(store, staged.files, "update", False, ())
    rows = pa.table({"k": [25, None, 33], "v1": [0.0, 0.0, 0.0]})
    assert edit.apply(rows).kept["v1"].to_pylist() == [0.5, 0.0, 0.5]
    assert [(c.op, c.value) for c in edit.predicates[0]] == [(">=", 0), ("<=", 39)]


def test_times_have_ranges_unless_python_has_no_such_year():
    times = MergeSource(pa.table({"k": column("time", [3, 1])}), ("k",)).range_of("k")
    assert [c.value for c in times] == [START + dt.timedelta(microseconds=n) for n in (1, 3)]
    assert MergeSource(pa.table({"k": column("year", [3, 1])}), ("k",)).range_of("k") == ()


def test_what_the_planner_knows_of_the_keys(store):
    source = pa.table({"k": [5, 3, 3, 9], "p": ["b", "a", "b", "a"]})
    staged = in_files(store, source, ("p", "k"), [2], together=("p",), indexed=("k",))
    assert (staged.num_rows, staged.listed) == (4, {"p", "k"})
    assert in_files(store, source, ("p", "k"), [2], ("p",), ("k",), limit=10).listed == {"p"}
    assert sorted(staged.distinct("k").to_pylist()) == [3, 5, 9]
    assert sorted(staged.combinations(["p"])["p"].to_pylist()) == ["a", "a", "b", "b"]
    other = in_files(store, source, ("p", "k"), [2], together=("k",)).combinations(["p"])
    assert sorted(other["p"].to_pylist()) == ["a", "a", "b", "b"]
    assert [(c.op, c.value) for c in staged.range_of("k")] == [(">=", 3), ("<=", 9)]
    assert [staged.key(n) for n in range(4)] == [
        {"p": "a", "k": 3},
        {"p": "b", "k": 5},
        {"p": "a", "k": 9},
        {"p": "b", "k": 3},
    ]
    assert pickle.loads(pickle.dumps(staged.files)) == staged.files


def test_a_source_without_rows_matches_nothing(store):
    staged = StagedSource(store, SourceFiles("uuid", pa.schema([("k", pa.int64())]), ("k",), ()), (), 1)
    assert (staged.num_rows, staged.range_of("k"), staged.listed) == (0, (), frozenset())
    edit = MergeFiles(store, staged.files, "update", True, ())
    found = edit.find(pa.table({"k": [1, 2]}))
    assert (found.matched, found.deleted) == (0, 2)


@pytest.mark.parametrize("where", ["partition_on", "secondary_indices", "metadata"])
@pytest.mark.parametrize("kind", ["date", "time"])
def test_times_are_found_by_partition_values_indices_and_statistics(store, kind, where):
    def part(numbers, value):
        days = pa.array([START + dt.timedelta(i, microseconds=123_456) for i in numbers], pa.timestamp("us"))
        return pa.table(
            {"t": days if kind == "time" else days.cast(pa.date32(), safe=False), "x": numbers, "v1": value}
        )

    old = [part(list(range(i, i + 5)), [0] * 5) for i in range(0, 50, 5)]
    store_dataframes_as_dataset(store, "uuid", old, **{where: {} if where == "metadata" else ["t"]})
    report = merge_dataset([part([3, 22, 60], [1] * 3)], store, "uuid", ["t", "x"])
    assert (report.updated, report.inserted) == (2, 1)
    assert report.files_rewritten + report.files_removed == 2
    found = read_table_arrow("uuid", store, predicates=[[("v1", "==", 1)]])
    assert sorted(found["x"].to_pylist()) == [3, 22, 60]
