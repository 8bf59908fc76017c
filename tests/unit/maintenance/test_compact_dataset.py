"""`compact_dataset`: other files, the same dataset."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube import open_store, options
from kartothek_cube.api.dataset import (
    DatasetFactory,
    compact_dataset,
    create_empty_dataset_header,
    garbage_collect_dataset,
    read_table,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.api.serialization import CsvSerializer, ParquetSerializer
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.reader import file_stats, format_like
from kartothek_cube.core.metadata.document import render_document
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.contract import WRITES, ReadOnlyView, StoreView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    CommitConflict,
    CorruptData,
    DatasetNotFound,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    KeyNotFound,
    ReadOnlyStore,
    UnknownColumn,
)
from kartothek_cube.testing.stores import CountingStore, FaultyStore, SimulatedCrash
from tests.support.datasets import (
    UUID,
    contents,
    document,
    file_of,
    index,
    index_of_files,
    keys,
    labels,
    read,
    refused,
    rows,
    schema,
    snapshot,
    user_metadata,
)

ROWS = {"p": [1, 1, 2], "x": [1, 2, 3], "i1": ["a", "b", "a"]}


@pytest.fixture
def store():
    return MemoryStore()


def add(store, data=None, **more):
    data = pa.table(ROWS) if data is None else data
    arguments: dict[str, Any] = {"partition_on": ["p"], "secondary_indices": ["i1"], **more}
    return update_dataset_from_dataframes([data], store, UUID, **arguments)


def fill(store, times=4, **more):
    for n in range(times):
        add(store, pa.table({**ROWS, "x": [10 * n + x for x in ROWS["x"]]}), **more)


def folders_of(store):
    return [label.rpartition("/")[0] for label in labels(store)]


def by_partition(store):
    """The rows of each physical partition, in their order."""
    found = defaultdict(list)
    for row in read(store).to_pylist():
        found[row.get("p"), row.get("q")].append(row)
    return found


def data_keys(store):
    return [key for key in keys(store) if "/table/" in key and key.endswith(".parquet")]


# --- the same dataset -----------------------------------------------------------------------------


def test_small_files_become_one_for_each_physical_partition(store):
    fill(store)
    before = by_partition(store)
    report = compact_dataset(UUID, store)
    assert folders_of(store) == ["p=1", "p=2"]
    assert by_partition(store) == before
    assert (report.files_before, report.files_after, report.rows_before, report.rows_after) == (8, 2, 12, 12)
    assert report.partitions == ["p=1", "p=2"]
    assert report.commit == snapshot(store).chain[-1].id
    sizes = [len(store.get(key)) for key in snapshot(store).files.to_pylist()]
    assert report.bytes_after == sum(sizes)
    assert report.bytes_before == sum(len(store.get(key)) for key in data_keys(store)) - sum(sizes)


def test_the_dataset_is_otherwise_as_it_was(store):
    fill(store, metadata={"owner": "me"})
    before, columns, names = user_metadata(store), schema(store), set(document(store))
    read_before = {
        value: set(read(store, predicates=[[("i1", "==", value)]]).column("x").to_pylist()) for value in "ab"
    }
    compact_dataset(UUID, store)
    assert (user_metadata(store), schema(store), set(document(store))) == (before, columns, names)
    assert index(store, "i1") == index_of_files(store, "i1")
    assert {
        value: set(read(store, predicates=[[("i1", "==", value)]]).column("x").to_pylist()) for value in "ab"
    } == read_before
    for label, entry in document(store)["partitions"].items():
        assert entry == {"files": {"table": f"{UUID}/table/{label}.parquet"}}
    assert file_of(store, labels(store)[0]).column_names == ["i1", "x"]


def test_one_commit_and_then_nothing_is_to_be_done(store):
    fill(store)
    commits = len(snapshot(store).chain)
    compact_dataset(UUID, store)
    assert len(snapshot(store).chain) == commits + 1
    before = contents(store)
    report = compact_dataset(UUID, store)
    assert (report.commit, report.files_before, report.rows_after) == (None, 0, None)
    assert contents(store) == before


def test_files_that_are_large_enough_stay(store):
    for size in (1, 1, 6, 1, 1):
        add(store, pa.table({"x": list(range(size)), "i1": ["a"] * size}), partition_on=[])
    large = labels(store)[2]
    compact_dataset(UUID, store, target_rows=12)
    assert [file_of(store, label).num_rows for label in labels(store)] == [2, 6, 2]
    assert labels(store)[1] == large


def test_the_order_of_rows_stays_when_the_middle_is_merged(store):
    for n, size in enumerate([6, 1, 1, 6]):
        add(store, pa.table({"x": [n] * size, "i1": ["a"] * size}), partition_on=[])
    before = read(store)
    compact_dataset(UUID, store, target_rows=12)
    assert len(labels(store)) == 3
    assert read(store).equals(before)


def test_an_updated_index_answers_after_garbage_is_gone(store):
    fill(store)
    compact_dataset(UUID, store)
    garbage_collect_dataset(UUID, store, options=options(grace=dt.timedelta(0), retain=dt.timedelta(0)))
    assert len(data_keys(store)) == 2
    assert sorted(read(store, predicates=[[("i1", "==", "b")]]).column("x").to_pylist()) == [2, 12, 22, 32]


def test_narrow_and_late_columns_get_the_type_of_the_dataset(store):
    add(store, pa.table({"x": pa.array([1], pa.int8())}), partition_on=[], secondary_indices=[])
    add(
        store,
        pa.table({"x": pa.array([2], pa.int32()), "v1": ["new"]}),
        partition_on=[],
        secondary_indices=[],
        add_columns=True,
    )
    before = read(store)
    compact_dataset(UUID, store)
    assert read(store).equals(before)
    assert file_of(store, labels(store)[0]).to_pydict() == {"v1": [None, "new"], "x": [1, 2]}


def test_files_without_rows_are_merged_too(store):
    for n in (0, 0, 1, 0):
        add(
            store,
            pa.table({"x": pa.array(range(n), pa.int64()), "i1": pa.array(["a"] * n, pa.string())}),
            partition_on=[],
        )
    count = len(labels(store))
    report = compact_dataset(UUID, store)
    assert (report.files_before, len(labels(store))) == (count, 1)
    assert rows(store) == [("a", 0)]
    assert index(store, "i1") == index_of_files(store, "i1")


def test_only_files_without_rows(store):
    store_dataframes_as_dataset(store, UUID, [pa.table({"x": pa.array([], pa.int64())})] * 3)
    assert compact_dataset(UUID, store).rows_after == 0
    assert len(labels(store)) == 1
    assert read(store).num_rows == 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["a/b", "ä=%"]),
        ("date", [dt.date(2024, 2, 29), dt.date(2024, 3, 1)]),
        ("timestamp", [dt.datetime(2024, 2, 29, 1, 2, 3, 4), dt.datetime(1969, 1, 1)]),
        ("float", [0.5, -1e300]),
        ("bool", [True, False]),
        ("two", [1, 2]),
    ],
)
def test_partition_values_of_every_type_stay(store, kind, values):
    keys_ = ["p", "q"] if kind == "two" else ["p"]
    for n in range(3):
        data = pa.table({"p": values, "q": values, "x": [n, n + 10], "i1": ["a", "b"]})
        add(store, data if kind == "two" else data.drop_columns(["q"]), partition_on=keys_)
    before, values_before, folders = (
        by_partition(store),
        sorted(set(snapshot(store).values.to_pydict()["p"])),
        set(folders_of(store)),
    )
    assert compact_dataset(UUID, store).files_after == 2
    assert by_partition(store) == before
    assert sorted(snapshot(store).values.to_pydict()["p"]) == values_before
    assert set(folders_of(store)) == folders


def test_tables_of_a_partition_are_merged_alike(store):
    for n in range(3):
        store_or_add = {"one": pa.table({"x": [n], "i1": ["a"]}), "two": pa.table({"y": [n, n], "i1": ["b", "c"]})}
        update_dataset_from_dataframes([store_or_add], store, UUID, secondary_indices=["i1"])
    before = {t: read(store, table=t) for t in ("one", "two")}
    report = compact_dataset(UUID, store, target_rows=5)
    assert (report.files_before, report.files_after) == (4, 2)
    assert {t: read(store, table=t).equals(before[t]) for t in before} == {"one": True, "two": True}
    assert [set(entry["files"]) for entry in document(store)["partitions"].values()] == [{"one", "two"}] * 2
    assert index(store, "i1") == index_of_files(store, "i1")
    assert schema(store, "two") == {"i1": "string", "y": "int64"}


def test_a_partition_that_lacks_a_table_is_no_hindrance(store):
    for n in range(2):
        update_dataset_from_dataframes([{"one": pa.table({"x": [n]}), "two": pa.table({"y": [n]})}], store, UUID)
    snap = snapshot(store)
    lacking = pa.array([None, snap.partitions.files["two"][1].as_py()], type=pa.string())
    partitions = type(snap.partitions)(snap.partitions.labels, {"one": snap.partitions.files["one"], "two": lacking})
    foreign = type(snap.document)(UUID, {}, (), {}, partitions)
    store.put(document_key(UUID), render_document(foreign, msgpack=False))
    compact_dataset(UUID, store)
    assert read(store, table="one").to_pydict() == {"x": [0, 1]}
    assert read(store, table="two").to_pydict() == {"y": [1]}


def test_a_document_in_msgpack_stays_one(store):
    store_dataframes_as_dataset(
        store, UUID, [pa.table({"x": [n]}) for n in range(3)], metadata_storage_format="msgpack"
    )
    compact_dataset(UUID, store)
    assert keys(store, "by-dataset-metadata") == [f"{UUID}.by-dataset-metadata.msgpack.zstd"]
    assert read(store).to_pydict() == {"x": [0, 1, 2]}


# --- formats and memory ---------------------------------------------------------------------------


def codec(store):
    return (
        pq.ParquetFile(pa.BufferReader(store.get(snapshot(store).files[0].as_py())))
        .metadata.row_group(0)
        .column(0)
        .compression
    )


@pytest.mark.parametrize("compression", ["SNAPPY", "ZSTD", "GZIP", "NONE"])
def test_the_codec_stays_unless_a_serializer_is_given(store, compression):
    fill(store, df_serializer=ParquetSerializer(compression))
    compact_dataset(UUID, store)
    assert codec(store) == compression.replace("NONE", "UNCOMPRESSED")
    add(store)
    compact_dataset(UUID, store, df_serializer=ParquetSerializer("BROTLI"))
    assert codec(store) == "BROTLI"


@pytest.mark.parametrize("compress", [True, False])
def test_csv_stays_csv(store, compress):
    serializer = CsvSerializer(compress=compress)
    fill(store, df_serializer=serializer)
    before = by_partition(store)
    report = compact_dataset(UUID, store)
    assert by_partition(store) == before
    assert all(key.endswith(serializer.file_suffix) for key in snapshot(store).files.to_pylist())
    assert report.bytes_before > 0
    assert index(store, "i1") == index_of_csv(store)


def index_of_csv(store):
    found = defaultdict(set)
    for label, key in zip(labels(store), snapshot(store).files.to_pylist(), strict=True):
        frame = CsvSerializer.restore_dataframe(store, key)
        for value in frame["i1"]:
            found[value].add(label)
    return found


def test_of_both_formats_parquet_carries_everything(store):
    add(store, partition_on=[])
    add(store, partition_on=[], df_serializer=CsvSerializer())
    before = read(store)
    compact_dataset(UUID, store)
    assert [key.rpartition(".")[2] for key in snapshot(store).files.to_pylist()] == ["parquet"]
    assert read(store).equals(before)


def test_a_format_that_cannot_carry_a_column_is_refused_before_anything_is_written(store):
    for _ in range(2):
        update_dataset_from_dataframes([pa.table({"x": [[1, 2]]})], store, UUID)
    with refused(store, NotImplementedError, match="CSV"):
        compact_dataset(UUID, store, df_serializer=CsvSerializer())


@pytest.mark.parametrize("last", ["noise", "shrinks"])
def test_a_file_that_no_codec_shrinks_says_nothing_of_the_codec(store, last):
    noise, n = np.random.default_rng(0).random(30_000), np.arange(30_000)
    frames = {"noise": pa.table({"v1": noise}), "shrinks": pa.table({"v1": np.floor(np.sqrt(n)) + noise.round(3)})}
    for name in sorted(frames, key=lambda name: name == last):
        update_dataset_from_dataframes([frames[name]], store, UUID, df_serializer=ParquetSerializer("GZIP"))
    keys = snapshot(store).files.to_pylist()
    figures = [file_stats(store, UUID, key) for key in keys]
    assert {"UNCOMPRESSED"} in [f.codecs for f in figures]
    assert format_like(keys, figures, 1, adaptive=False) == ParquetFormat("GZIP")


def test_rows_wait_in_bounded_memory_and_row_groups_shrink_with_it(tmp_path):
    store = open_store(tmp_path)
    data = pa.table({"x": np.arange(20_000), "v1": [f"{n:0100d}" for n in range(20_000)]})
    store_dataframes_as_dataset(store, UUID, [data] * 4)
    before = read(store)
    compact_dataset(UUID, store, options=options(bytes_in_flight=2**22, threads=2))
    assert read(store).equals(before)
    file = pq.ParquetFile(pa.BufferReader(store.get(snapshot(store).files[0].as_py())))
    assert file.metadata.num_rows == 80_000
    assert file.metadata.num_row_groups > 4


# --- which partitions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predicates", "changed"),
    [
        (None, ["p=1", "p=2"]),
        ([[("p", "==", 2)]], ["p=2"]),
        ([[("p", "<", 2)], [("p", ">", 7)]], ["p=1"]),
        ([[("i1", "==", "b")]], ["p=1"]),
        ([[("i1", "==", "b"), ("p", "==", 2)]], []),
        ([[("i1", "in", ["b"])], [("p", "==", 2)]], ["p=1", "p=2"]),
        ([[("i1", "==", "z")]], []),
        ([[("p", "in", [5, 6])]], []),
    ],
)
def test_predicates_choose_whole_physical_partitions(store, predicates, changed):
    fill(store)
    before = by_partition(store)
    report = compact_dataset(UUID, store, predicates=predicates)
    assert report.partitions == changed
    counts = {folder: folders_of(store).count(folder) for folder in ("p=1", "p=2")}
    assert counts == {folder: 1 if folder in changed else 4 for folder in counts}
    assert by_partition(store) == before


def test_an_index_value_in_one_file_chooses_its_whole_partition(store):
    fill(store)
    add(store, pa.table({"p": [2], "x": [99], "i1": ["only here"]}))
    assert compact_dataset(UUID, store, predicates=[[("i1", "==", "only here")]]).files_before == 5


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"predicates": [[("x", "==", 1)]]}, InvalidRequest, "'x'"),
        ({"predicates": [[("z", "==", 1)]]}, UnknownColumn, "z"),
        ({"predicates": [[("p", "==", "one")]]}, InvalidType, "p"),
        ({"predicates": []}, InvalidInput, "predicates"),
        ({"target_rows": 0}, InvalidInput, "target_rows"),
        ({"target_rows": "many"}, InvalidType, "target_rows"),
        ({"dry_run": "no"}, InvalidType, "dry_run"),
        ({"df_serializer": "ZSTD"}, InvalidType, "df_serializer"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(store, arguments, error, words):
    fill(store)
    with refused(store, error, match=words):
        compact_dataset(UUID, store, **arguments)


def test_a_missing_dataset_is_named(store):
    with pytest.raises(DatasetNotFound, match=UUID):
        compact_dataset(UUID, store)


def test_a_dataset_that_lists_no_partitions_is_refused(store):
    create_empty_dataset_header(store, UUID, {"table": pa.schema({"x": pa.int64()})})
    with refused(store, RuntimeError, InvalidRequest, match="lists no partitions"):
        compact_dataset(UUID, store)


def test_a_dataset_without_partitions_is_done(store):
    update_dataset_from_dataframes([pa.table(ROWS)], store, UUID, partition_on=["p"])
    update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": 1}, {"p": 2}])
    assert compact_dataset(UUID, store).commit is None


def test_a_store_that_cannot_be_written_to_is_refused_but_for_a_dry_run(store):
    fill(store)
    with refused(store, ReadOnlyStore):
        compact_dataset(UUID, ReadOnlyView(store))
    assert compact_dataset(UUID, ReadOnlyView(store), dry_run=True).files_before == 8


def test_a_factory_counts_as_the_dataset_and_forgets_what_it_knew(store):
    fill(store)
    factory = DatasetFactory(UUID, store)
    assert len(factory.partitions) == 8
    add(store)
    assert compact_dataset(factory=factory).files_before == 10
    assert len(factory.partitions) == 2
    with pytest.raises(InvalidInput):
        compact_dataset(UUID, store, factory=factory)


def test_a_file_that_is_damaged_or_missing_is_named(store):
    fill(store)
    key = snapshot(store).files[3].as_py()
    store.put(key, store.get(key)[:-9] + b"xPAR1")
    with refused(store, ValueError, CorruptData, match=key):
        compact_dataset(UUID, store)
    store.delete(key)
    with refused(store, KeyError, KeyNotFound, match=key):
        compact_dataset(UUID, store)


# --- calls of the store ---------------------------------------------------------------------------


def test_a_dry_run_reads_footers_and_writes_nothing(store):
    fill(store)
    add(store, pa.table({"p": [3], "x": [0], "i1": ["c"]}))
    snapshot(store)
    before, counting = contents(store), CountingStore(store)
    report = compact_dataset(UUID, counting, dry_run=True)
    assert (report.dry_run, report.commit, report.files_before, report.files_after, report.bytes_after) == (
        True,
        None,
        8,
        2,
        None,
    )
    assert contents(store) == before
    assert set(counting.counts) & WRITES == set()
    # One request a footer, and none for the file that has no neighbour.
    assert sorted(counting.touched("tail")) == sorted(
        key for key in snapshot(store).files.to_pylist() if "p=3" not in key
    )
    assert counting.touched("ranges", "list", "get", "get_versioned") == []


def test_reading_writing_and_committing_take_a_known_number_of_calls(store):
    fill(store)
    snapshot(store)
    old, counting = set(data_keys(store)), CountingStore(store)
    compact_dataset(UUID, counting)
    (index_key,) = {key for key in counting.touched("tail") if "/indices/" in key}
    # The footers for the plan: small files come whole with them.
    assert sorted(counting.touched("tail")) == sorted([*old, index_key])
    assert counting.touched("ranges", "list") == []
    assert sorted(counting.touched("put_file")) == sorted(set(data_keys(store)) - old)
    assert [key.partition("/")[2].partition("/")[0] for key in counting.touched("put_if")].count("indices") == 1
    assert counting.touched("put_if").count(f"{UUID}.by-dataset-metadata.json") == 1
    assert counting.touched("delete") == []


def crashes(store, verb):
    counting = CountingStore(store())
    verb(counting)
    for n in range(len(counting.calls)):
        for kind in ("crash", "crash_after"):
            made, seen = store(), iter(range(10**6))
            with pytest.raises(SimulatedCrash):
                verb(FaultyStore(made, lambda call, n=n, kind=kind, seen=seen: kind if next(seen) == n else None))
            yield made


@pytest.mark.slow
def test_a_crash_at_any_call_leaves_all_rows_in_the_old_files_or_the_new():
    def made():
        store = MemoryStore()
        fill(store, 2)
        return store

    old, states = by_partition(made()), set()
    for store in crashes(made, lambda store: compact_dataset(UUID, store, options=options(threads=1))):
        assert by_partition(store) == old
        assert index(store, "i1") == index_of_files(store, "i1")
        states.add(len(labels(store)))
    assert states == {4, 2}


# --- other writers --------------------------------------------------------------------------------


class Interrupted(StoreView):
    """A store in which somebody else does something when the first merged file is written."""

    def __init__(self, inner, action):
        super().__init__(inner)
        self.action = action

    def around(self, operation, key, action):
        if operation == "put_file" and self.action is not None:
            todo, self.action = self.action, None
            todo()
        return super().around(operation, key, action)


def test_rows_that_are_added_meanwhile_come_after_the_merged_ones(store):
    fill(store)
    before = by_partition(store)
    new = pa.table({"p": [1, 3], "x": [77, 78], "i1": ["b", "z"]})
    compact_dataset(UUID, Interrupted(store, lambda: add(store, new)))
    assert folders_of(store) == ["p=1", "p=2", "p=1", "p=3"]
    before[1, None].append({"p": 1, "x": 77, "i1": "b"})
    before[3, None].append({"p": 3, "x": 78, "i1": "z"})
    assert by_partition(store) == before
    assert index(store, "i1") == index_of_files(store, "i1")


def test_an_input_that_is_removed_meanwhile_is_a_conflict(store):
    fill(store)
    with pytest.raises(CommitConflict, match=UUID):
        compact_dataset(UUID, Interrupted(store, lambda: add(store, pa.table(ROWS), delete_scope=[{"p": 2}])))
    assert folders_of(store).count("p=1") == 5
    assert folders_of(store).count("p=2") == 1
    assert index(store, "i1") == index_of_files(store, "i1")


def test_of_two_compactions_one_wins_and_no_row_is_there_twice(store):
    fill(store)
    before = by_partition(store)
    with pytest.raises(CommitConflict):
        compact_dataset(UUID, Interrupted(store, lambda: compact_dataset(UUID, store)))
    assert by_partition(store) == before
    assert len(labels(store)) == 2


def test_what_is_removed_elsewhere_meanwhile_is_no_conflict(store):
    fill(store)
    compact_dataset(
        UUID,
        Interrupted(store, lambda: update_dataset_from_dataframes([], store, UUID, delete_scope=[{"p": 2}])),
        predicates=[[("p", "==", 1)]],
    )
    assert folders_of(store) == ["p=1"]
    assert sorted(read(store).column("x").to_pylist()) == [1, 2, 11, 12, 21, 22, 31, 32]


# --- datasets of cubes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ("ktk_cube_dimension_columns", "ktk_cube_partition_columns"),
        ("klee_dimension_columns", "klee_partition_columns"),
    ],
)
def test_a_dataset_of_a_cube_keeps_what_the_cube_relies_on(store, names):
    noted = dict(zip(names, (["x"], ["p"]), strict=True))
    for n in range(3):
        add(store, pa.table({"p": [1, 1], "x": [0, 9 - n], "i1": [f"row {n}", "a"]}), metadata=noted)
    compact_dataset(UUID, store)
    (label,) = labels(store)
    assert file_of(store, label).to_pydict() == {"i1": ["row 2", "a", "a", "a"], "x": [0, 7, 8, 9]}
    assert index(store, "i1") == {"row 2": {label}, "a": {label}}


# --- random datasets ------------------------------------------------------------------------------

PART = st.lists(
    st.fixed_dictionaries(
        {
            "p": st.integers(0, 2),
            "q": st.sampled_from(["", "a/b"]),
            "i1": st.none() | st.integers(0, 3),
            "x": st.integers(-(2**63), 2**63 - 1),
        },
    ),
    max_size=5,
)
TYPES = pa.schema({"p": pa.int64(), "q": pa.string(), "i1": pa.int64(), "x": pa.int64()})
OPERATORS = ["==", "!=", "<", "<=", ">", ">="]
CLAUSES = st.one_of(
    st.tuples(st.sampled_from(["p", "i1"]), st.sampled_from(OPERATORS), st.integers(0, 3)),
    st.tuples(
        st.sampled_from(["p", "i1"]),
        st.sampled_from(["in", "not in"]),
        st.lists(st.integers(0, 3), min_size=1, max_size=2),
    ),
    st.tuples(st.just("q"), st.sampled_from(["==", "!="]), st.sampled_from(["", "a/b", "z"])),
    st.tuples(st.just("x"), st.sampled_from(OPERATORS), st.integers(-(2**63), 2**63 - 1)),
)
PREDICATES = st.lists(st.lists(CLAUSES, min_size=1, max_size=2), min_size=1, max_size=2)


@pytest.mark.slow
@given(
    parts=st.lists(PART, min_size=1, max_size=8),
    partition_on=st.sampled_from([(), ("p",), ("q", "p")]),
    targets=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    questions=st.lists(PREDICATES, max_size=4),
)
def test_whatever_is_compacted_answers_as_before(parts, partition_on, targets, questions):
    store = MemoryStore()
    for part in parts:
        update_dataset_from_dataframes(
            [pa.Table.from_pylist(part, TYPES)], store, UUID, partition_on=list(partition_on), secondary_indices=["i1"]
        )
    before, answers = _state(store), [_answer(store, question) for question in questions]
    for target in targets:
        compact_dataset(UUID, store, target_rows=target)
        assert _state(store) == before
        assert [_answer(store, question) for question in questions] == answers
        assert index(store, "i1") == index_of_files(store, "i1")


def _state(store):
    """The rows in their order, for each physical partition."""
    table = read(store)
    assert table.schema.equals(pa.schema([TYPES.field(name) for name in table.column_names]))
    found = defaultdict(list)
    for label, key in zip(labels(store), snapshot(store).files.to_pylist(), strict=True):
        found[label.rpartition("/")[0]] += pq.read_table(pa.BufferReader(store.get(key))).to_pylist()
    return {folder: rows for folder, rows in found.items() if rows}


def _answer(store, predicates):
    return sorted(
        map(str, read_table(UUID, store, predicates=predicates).astype(object).where(pd.notna, None).to_dict("records"))
    )
