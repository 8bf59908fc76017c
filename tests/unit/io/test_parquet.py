from __future__ import annotations

import datetime as dt
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.io.formats import AdaptiveParquetFormat, ParquetFormat
from kartothek_cube.core.io.parquet import ParquetSource, column_bounds, open_file
from kartothek_cube.core.io.parquet_rows import read_columns
from kartothek_cube.core.io.reader import FileRequest, file_rows, read_rows
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, KeyNotFound
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault

pytestmark = pytest.mark.usefixtures("fast_paths")

KEY = "uuid/table/f.parquet"
SCHEMA = pa.schema([("p", pa.int64()), ("x", pa.int64()), ("y", pa.string()), ("v1", pa.float64())])


@pytest.fixture(params=["local", "planned"])
def store(request, tmp_path):
    """Files that Arrow opens itself, and files of which the store gives ranges."""
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def put(store, table, **options):
    store.put(KEY, memoryview(ParquetFormat(**options).encode(pa.table(table))))


def read(store, columns, *clauses, schema=SCHEMA, constants=None):
    return read_rows(
        store, KEY, FileRequest("uuid", schema, tuple(columns), (clauses,) if clauses else None), constants
    )


# --- writing --------------------------------------------------------------------------------------


def test_files_are_as_kartothek_writes_them():
    table = pa.table(
        {"x": pa.array([1, 2], pa.int8()), "t": pa.array([1, 2], pa.timestamp("ms")), "l": [[1], None]}
    ).replace_schema_metadata({"pandas": "{}"})
    metadata = pq.read_metadata(pa.BufferReader(ParquetFormat().encode(table)))
    assert (metadata.num_row_groups, metadata.format_version) == (1, "2.6")
    assert sorted(metadata.metadata) == [b"ARROW:schema"]
    assert [metadata.schema.column(j).path for j in range(3)] == ["x", "t", "l.list.item"]
    assert metadata.row_group(0).column(0).compression == "SNAPPY"
    assert metadata.row_group(0).column(0).is_stats_set
    assert "microseconds" in str(metadata.schema.column(1).logical_type)


NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "data_type", "has_statistics"),
    [
        ([0.5, NAN, None], pa.float64(), False),
        ([0.5, NAN], pa.float32(), False),
        ([0.5, NAN], pa.float16(), False),
        ([[0.5, NAN], None], pa.list_(pa.float64()), False),
        ([{"a": NAN, "b": [1]}], pa.struct([("a", pa.float64()), ("b", pa.list_(pa.int64()))]), False),
        ([0.5, None], pa.float64(), True),
        ([None, None], pa.float64(), True),
        ([[1]], pa.list_(pa.int64()), True),
    ],
    ids=str,
)
def test_column_chunks_with_nan_have_no_statistics(values, data_type, has_statistics):
    is_half = pa.types.is_float16(data_type)  # which Arrow 18 makes of NumPy's floats alone
    column = pa.array(np.array(values, np.float16)) if is_half else pa.array(values, data_type)
    table = pa.table({"x": range(len(values)), "v1": column, "v2": ["a"] * len(values)})
    for encoded in (ParquetFormat().encode(table), AdaptiveParquetFormat().encode(table)):
        metadata = pq.read_metadata(pa.BufferReader(encoded))
        columns = [metadata.row_group(0).column(j) for j in range(metadata.num_columns)]
        found = {c.path_in_schema: c.is_stats_set for c in columns}
        assert set(found.values()) == {True} or not has_statistics
        assert {path for path, is_set in found.items() if is_set} >= {"x", "v2"}
        assert any(is_set for path, is_set in found.items() if path.startswith("v1")) == has_statistics


def test_floats_that_come_piece_by_piece_have_no_statistics_since_nan_may_follow():
    pieces = [pa.table({"x": [1], "v1": [0.5]}), pa.table({"x": [2], "v1": [NAN]})]
    sink = pa.BufferOutputStream()
    ParquetFormat(chunk_size=1).write_stream(pieces, pieces[0].schema, sink)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    found = [[metadata.row_group(g).column(j).is_stats_set for j in (0, 1)] for g in (0, 1)]
    assert found == [[True, False]] * 2


@pytest.mark.parametrize("condition", ["v1 > 1", "v1 = 'nan'", "NOT (v1 <= 1)", "v1 <> 0.5", "v1 >= 0.75"])
def test_duckdb_finds_rows_with_nan_in_our_files(tmp_path, condition):
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "v1.parquet").write_bytes(ParquetFormat().encode(pa.table({"v1": [0.5, NAN, None]})))
    found = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/v1.parquet') WHERE {condition}").fetchall()
    assert str(found) == "[(nan,)]"


def test_arrows_dataset_finds_rows_with_nan_in_our_files(tmp_path):
    import pyarrow.dataset as ds

    (tmp_path / "v1.parquet").write_bytes(ParquetFormat().encode(pa.table({"v1": [0.5, NAN]})))
    found = ds.dataset(tmp_path / "v1.parquet").to_table(filter=ds.field("v1") != 0.5)
    assert str(found.column("v1").to_pylist()) == "[nan]"


def test_size_of_row_groups_and_codec():
    metadata = pq.read_metadata(pa.BufferReader(ParquetFormat("ZSTD", 2).encode(pa.table({"x": range(5)}))))
    assert [metadata.row_group(g).num_rows for g in range(3)] == [2, 2, 1]
    assert metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize(
    ("rows", "chunk_size", "codec"),
    [
        (0, None, "SNAPPY"),
        (8191, None, "SNAPPY"),
        (8192, None, "ZSTD"),
        (20_000, 8191, "SNAPPY"),
        (20_000, 8192, "ZSTD"),
    ],
)
def test_small_column_chunks_are_not_written_with_zstd(rows, chunk_size, codec):
    table = pa.table(
        {
            "x": np.arange(rows),
            "y": np.arange(rows),
            "l": pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), np.arange(rows, dtype=np.int32)),
        }
    )
    sink = io.BytesIO()
    AdaptiveParquetFormat(chunk_size=chunk_size).write_stream(
        [table.slice(0, rows // 2), table.slice(rows // 2)], table.schema, sink
    )
    for data in (AdaptiveParquetFormat(chunk_size=chunk_size).encode(table), pa.py_buffer(sink.getvalue())):
        file = pq.ParquetFile(pa.BufferReader(data))
        assert {file.metadata.row_group(0).column(j).compression for j in range(3)} == {codec}
        assert file.read() == table


def test_a_part_of_a_large_table_counts_as_what_it_is():
    data = AdaptiveParquetFormat().encode(pa.table({"x": np.arange(100_000)}).slice(10, 100))
    assert pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0).compression == "SNAPPY"


@pytest.mark.parametrize(("rows", "codec"), [(1, "SNAPPY"), (8192, "GZIP")])
def test_another_codec_than_zstd_gives_way_to_snappy_too(rows, codec):
    data = AdaptiveParquetFormat("GZIP").encode(pa.table({"x": np.arange(rows)}))
    assert pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0).compression == codec


@pytest.mark.parametrize(
    ("size", "error"),
    [(0, InvalidInput), (-1, InvalidInput), (1.5, InvalidType), (True, InvalidType), ("1", InvalidType)],
)
def test_wrong_chunk_size_is_refused(size, error):
    with pytest.raises(error, match="chunk_size"):
        ParquetFormat(chunk_size=size)


@pytest.mark.parametrize(("chunk_size", "groups"), [(None, [10]), (4, [4, 4, 2]), (5, [5, 5]), (100, [10])])
def test_a_file_may_be_written_piece_by_piece(chunk_size, groups):
    table = pa.table({"x": range(10), "y": pa.array([f"{i}" for i in range(10)], pa.large_string())})
    schema = pa.schema([("y", pa.string()), ("x", pa.int8())], metadata={"pandas": "{}"})
    pieces = [table.slice(0, 3), *table.slice(3, 6).to_batches(max_chunksize=2), table.slice(9), table.slice(0, 0)]
    sink = io.BytesIO()
    assert ParquetFormat(chunk_size=chunk_size).write_stream(iter(pieces), schema, sink) == 10
    sink.seek(0)
    metadata = pq.read_metadata(sink)
    assert [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)] == groups
    assert sorted(metadata.metadata) == [b"ARROW:schema"]
    assert pq.read_table(sink) == table.select(["y", "x"]).cast(schema)


def test_a_stream_without_rows_is_a_file_without_rows():
    sink = io.BytesIO()
    assert ParquetFormat().write_stream([], pa.schema([("x", pa.int8())]), sink) == 0
    assert pq.read_table(sink) == pa.table({"x": pa.array([], pa.int8())})


def test_small_pieces_are_put_together_once(monkeypatch):
    """And not each with all that came before, which takes minutes where there are many."""
    handled, concat = [], pa.concat_tables
    monkeypatch.setattr(pa, "concat_tables", lambda tables: handled.append(len(tables)) or concat(tables))
    pieces = [pa.table({"x": [i]}) for i in range(100)]
    ParquetFormat(chunk_size=30).write_stream(pieces, pa.schema([("x", pa.int64())]), io.BytesIO())
    assert sum(handled) <= 110


def test_a_stream_holds_one_row_group_at_a_time():
    """At each step no more rows are ahead of the file than those of one row group and one piece."""
    sink = io.BytesIO()
    written, given = [], 0

    def pieces():
        nonlocal given
        for _ in range(50):
            written.append((given, sink.tell()))
            given += 1_000
            yield pa.table({"x": np.random.default_rng(given).integers(0, 2**62, 1_000)})

    ParquetFormat("NONE", chunk_size=5_000).write_stream(pieces(), pa.schema([("x", pa.int64())]), sink)
    assert all(size >= 8 * (rows - 5_000) for rows, size in written)


# --- the suffix says the format -------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["uuid/table/f", "uuid/table/f.feather", "uuid/table/f.parquet.crc", "uuid/table/f.csv.bz2"]
)
def test_an_unknown_suffix_is_refused(key):
    store = CountingStore(MemoryStore())
    with pytest.raises(
        InvalidInput, match=f"The specified file format for '{key}' is not supported .*'uuid'.*.csv.gz, .csv, .parquet"
    ):
        read_rows(store, key, FileRequest("uuid", SCHEMA, ("x",)))
    with pytest.raises(ValueError, match="is not supported"):
        file_rows(store, key, "uuid")
    assert store.calls == []


# --- reading --------------------------------------------------------------------------------------


def test_columns_come_in_the_order_asked_for(store):
    put(store, {"y": ["a", "b"], "x": [1, 2], "v1": [0.5, None]})
    assert read(store, ["v1", "x"]).to_pydict() == {"v1": [0.5, None], "x": [1, 2]}
    assert read(store, ["x"], Clause("y", "==", "b")).to_pydict() == {"x": [2]}
    assert read(store, []).num_rows == 2
    assert read(store, [], Clause("y", "==", "b")).num_rows == 1


def test_missing_columns_are_null(store):  # F19
    put(store, {"x": [1, 2]})
    assert read(store, ["x", "y"]).to_pydict() == {"x": [1, 2], "y": [None, None]}
    assert read(store, ["y"]).schema == pa.schema([("y", pa.string())])
    assert read(store, ["x"], Clause("y", "==", None)).num_rows == 2
    assert read(store, ["x"], Clause("y", "!=", "a")).num_rows == 2
    assert read(store, ["x"], Clause("y", "==", "a")).num_rows == 0


def test_surplus_columns_and_row_labels_are_passed_over(store):  # F20, F34
    put(store, {"x": [1], "z": [3], "__index_level_0__": [7]})
    assert read(store, ["x"]).to_pydict() == {"x": [1]}


@pytest.mark.parametrize(
    ("inside", "kind"),
    [
        (pa.array([1, None], pa.int8()), pa.int64()),
        (pa.array([1, None], pa.uint16()), pa.uint64()),
        (pa.array([1.5, None], pa.float32()), pa.float64()),
        (pa.array([None, None], pa.null()), pa.string()),
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array(["a", None], pa.large_string()).dictionary_encode(), pa.string()),
        (pa.array([1, None], pa.int8()).dictionary_encode(), pa.int64()),
        (pa.array([[1], None], pa.list_(pa.int8())), pa.list_(pa.int64())),
        (pa.array([["a"], None], pa.large_list(pa.large_string())), pa.list_(pa.string())),
        (pa.array([dt.datetime(2020, 1, 1), None], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([dt.datetime(2020, 1, 1), None], pa.timestamp("s")), pa.timestamp("us")),
        (pa.array([dt.date(2020, 1, 1), None], pa.date64()), pa.date32()),
        (pa.array([b"a", None], pa.large_binary()), pa.binary()),
        (pa.array([dt.time(1), None], pa.time32("s")), pa.time32("ms")),
        (pa.array([dt.time(1), None], pa.time64("us")), pa.time64("us")),
        (pa.array([dt.timedelta(1), None], pa.duration("ms")), pa.duration("ms")),
    ],
    ids=str,
)
def test_columns_come_in_the_types_of_the_dataset(store, inside, kind):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": inside}), sink)
    store.put(KEY, memoryview(sink.getvalue()))
    column = read(store, ["x"], schema=pa.schema([("x", kind)])).column("x")
    assert column.type == kind
    assert column.to_pylist() == inside.to_pylist()


@pytest.mark.parametrize(
    ("inside", "kind"),
    [
        (pa.array([1]), pa.string()),
        (pa.array([1]), pa.float64()),
        (pa.array([1]), pa.uint64()),
        (pa.array([300]), pa.int8()),
        (pa.array(["a"]), pa.binary()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([1], pa.timestamp("us", tz="UTC")), pa.timestamp("us")),
    ],
    ids=str,
)
def test_column_of_another_family_is_named(store, inside, kind):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": inside}), sink)
    store.put(KEY, memoryview(sink.getvalue()))
    with pytest.raises(CorruptData, match=f"'x' of the file '{KEY}'"):
        read(store, ["x"], schema=pa.schema([("x", kind)]))


def test_partition_values_win_over_columns_inside(store):  # F21, H07
    put(store, {"p": [8, 9], "x": [1, 2]})
    assert read(store, ["p", "x"], constants={"p": 7}).to_pydict() == {"p": [7, 7], "x": [1, 2]}
    assert read(store, ["p"], constants={"p": 7}).to_pydict() == {"p": [7, 7]}
    assert read(store, ["x"], Clause("p", "==", 7), Clause("x", ">", 1), constants={"p": 7}).to_pydict() == {"x": [2]}


def test_a_file_whose_partition_values_exclude_it_is_not_opened():
    store = CountingStore(MemoryStore())
    found = read(store, ["x", "p"], Clause("p", "==", 8), constants={"p": 7})
    assert (found.num_rows, found.schema) == (0, pa.schema([("x", pa.int64()), ("p", pa.int64())]))
    assert store.calls == []


@pytest.mark.parametrize("rows", [0, 3])
def test_empty_files(store, rows):
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema([("x", pa.int64())])) as writer:
        if rows:
            writer.write_table(pa.table({"x": pa.array([], pa.int64())}))
    store.put(KEY, memoryview(sink.getvalue()))
    assert read(store, ["x", "y"], Clause("x", "==", 1)).schema == pa.schema([("x", pa.int64()), ("y", pa.string())])
    assert read(store, ["x", "p"], constants={"p": 1}).num_rows == 0
    assert file_rows(store, KEY, "uuid") == 0
    assert read_columns(store, KEY, "uuid")[0].num_rows == 0


# --- row groups -----------------------------------------------------------------------------------


def wide(rows=20_000, seed=0):
    """More than 64 kB, in row groups of 1,000; x ascends, y is one of ten texts, v1 is random."""
    rng = np.random.default_rng(seed)
    return {"x": np.arange(rows), "y": pa.array([f"{i // 2000}" for i in range(rows)]), "v1": rng.random(rows)}


class Groups:
    """Notes which row groups are read."""

    def __init__(self, monkeypatch):
        self.read = []
        original = ParquetSource._decoded

        def decoded(source, file, groups, columns):
            self.read += groups
            assert groups, "pyarrow 18 raises for no row groups"
            return original(source, file, groups, columns)

        monkeypatch.setattr(ParquetSource, "_decoded", decoded)


@pytest.mark.parametrize(
    ("clauses", "groups"),
    [
        ([Clause("x", "==", 4_500)], [4]),
        ([Clause("x", ">=", 18_999)], [18, 19]),
        ([Clause("x", "in", (0, 19_999))], [0, 19]),
        ([Clause("y", "==", "3")], [6, 7]),
        ([Clause("y", "==", "3"), Clause("x", "<", 7_000)], [6]),
        ([Clause("y", "==", "none")], []),
        ([Clause("x", "==", None)], []),
        ([Clause("y", "!=", "0"), Clause("x", "<", 2_500)], [2]),
        ([Clause("x", ">", 2**70)], []),
    ],
)
def test_row_groups_that_cannot_match_are_not_read(store, monkeypatch, clauses, groups):
    put(store, wide(), chunk_size=1_000)
    seen = Groups(monkeypatch)
    found = read(store, ["x", "v1"], *clauses)
    assert sorted(set(seen.read)) == groups
    whole = pq.read_table(pa.BufferReader(store.get(KEY)))
    from kartothek_cube.core.expressions.predicates import matching_rows

    assert found == whole.filter(pa.array(matching_rows(whole, (tuple(clauses),)))).select(["x", "v1"])


def test_conjunctions_are_alternatives(store, monkeypatch):
    put(store, wide(), chunk_size=1_000)
    seen = Groups(monkeypatch)
    request = FileRequest(
        "uuid", SCHEMA, ("x",), ((Clause("x", "==", 5),), (Clause("x", "==", 4_500), Clause("y", "==", "2")))
    )
    assert read_rows(store, KEY, request).to_pydict() == {"x": [5, 4_500]}
    assert sorted(set(seen.read)) == [0, 4]


def test_files_without_statistics_are_read_whole(store):  # H34
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1, 2]}), sink, write_statistics=False, row_group_size=1)
    store.put(KEY, memoryview(sink.getvalue()))
    assert read(store, ["x"], Clause("x", "==", 2)).to_pydict() == {"x": [2]}


@pytest.mark.usefixtures("only_fast")
def test_planned_reads_fetch_the_footer_once_and_only_what_is_asked_for():
    store = CountingStore(MemoryStore())
    put(store, wide(), chunk_size=1_000)
    size = len(store.inner.get(KEY))
    fetched = []
    original = store.inner.ranges
    store.inner.ranges = lambda key, spans: [fetched.extend(spans), original(key, spans)][1]
    store.reset()
    read(store, ["v1"], Clause("x", "==", 4_500))
    assert store.counts == {"local_path": 1, "tail": 1, "ranges": 1}
    assert sum(b - a for a, b in fetched) < size / 10
    store.reset()
    assert file_rows(store, KEY, "uuid") == 20_000
    assert store.counts == {"local_path": 1, "tail": 1}


def test_planned_reads_of_every_kind_of_column_equal_local_ones(tmp_path):
    rows = 5_000
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "a": rng.random(rows),
            "a.b": rng.random(rows),
            "l.x": [[float(v), None] for v in rng.random(rows)],
            "s": [{"a": float(v)} for v in rng.random(rows)],
            "t": pa.array([f"{v}" for v in rng.random(rows)]).dictionary_encode(),
            "n": pa.nulls(rows),
            "x": range(rows),
        }
    )
    local, planned = LocalStore(tmp_path), MemoryStore()
    for store in (local, planned):
        put(store, table, chunk_size=700)
    schema = table.schema.set(4, pa.field("t", pa.string()))
    for columns in (["a"], ["a.b"], ["l.x"], ["s"], ["t", "n"], ["n"], table.column_names):
        for clauses in ((), (Clause("x", ">", 4_000),), (Clause("x", "==", -1),)):
            left, right = (read(s, columns, *clauses, schema=schema) for s in (local, planned))
            assert left == right
            right.validate(full=True)


def test_footer_longer_than_the_first_read():
    store = CountingStore(MemoryStore())
    put(store, {f"column {i:04d} with a long name": range(4) for i in range(600)}, chunk_size=1)
    assert file_rows(store, KEY, "uuid") == 4
    assert store.counts["tail"] == 2


# --- damage ---------------------------------------------------------------------------------------


def test_missing_file_names_dataset_and_key(store):
    for action in (
        lambda: read(store, ["x"]),
        lambda: file_rows(store, KEY, "uuid"),
        lambda: read_columns(store, KEY, "uuid"),
    ):
        with pytest.raises(KeyNotFound, match=f"'{KEY}'.*dataset 'uuid'"):
            action()


def good():
    return ParquetFormat().encode(pa.table(wide())).to_pybytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: b"",
        lambda d: b"PAR1",
        lambda d: b"no parquet file at all",
        lambda d: d[: len(d) // 2],
        lambda d: d[:-1],
        lambda d: d[:-8] + b"\xff\xff\xff\x7fPAR1",
        lambda d: d[:-300] + bytes(292) + d[-8:],
        lambda d: b"PAR1" + bytes(len(d) // 2) + d[len(d) // 2 + 4 :],
        lambda d: b"\x18\x01\xe9".join(d.rsplit(b"\x18\x01y", 2)),  # the name of a column, in the footer
    ],
    ids=range(9),
)
def test_damaged_file_names_dataset_and_key(store, damage):
    store.put(KEY, damage(good()))
    with pytest.raises(CorruptData, match=f"'{KEY}' of dataset 'uuid'"):
        read(store, ["x", "y", "v1"])


@pytest.mark.parametrize("operation", ["tail", "ranges", "local_path"])
def test_a_store_that_fails_is_no_damaged_file(operation):
    store = FaultyStore(MemoryStore(), lambda call: "before" if call.operation == operation else None)
    put(store.inner, wide())
    with pytest.raises(InjectedFault):
        read(store, ["x", "v1"])


def test_file_that_vanishes_while_it_is_read_is_named():
    store = MemoryStore()
    put(store, wide())

    def vanish_and_read():
        with open_file(store, KEY, "uuid") as source:
            store.delete(KEY)
            source.read([0], ["x", "v1"])

    with pytest.raises(KeyNotFound, match=KEY):
        vanish_and_read()


# --- bounds of a column ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([3, 1, 2, 9, 5]), (1, 9)),
        (pa.array([3, 1, 200, 9, 5], pa.uint8()), (1, 200)),
        (pa.array(["b", "a", "ä", "ab", "z"]), ("a", "ä")),
        (pa.array([dt.date(2026, 1, n) for n in (5, 2, 3, 4, 1)]), (dt.date(2026, 1, 1), dt.date(2026, 1, 5))),
        (pa.array([3, 1, None, 9, 5]), None),
        (pa.array([0.5, float("nan"), 1.0, 2.0, 3.0]), None),
        (pa.array([0.5, 1.0, 2.0, 3.0, 4.0], pa.float32()).dictionary_encode(), None),
        (pa.array(np.arange(5, dtype=np.float16)), None),
        (pa.array([[1], [2], [3], [4], [5]]), None),
        (pa.array([], pa.int64()), None),
        (pa.nulls(5), None),
    ],
)
def test_bounds_of_a_column_are_those_of_all_row_groups(store, values, expected):
    put(store, {"x": values}, chunk_size=2)
    with open_file(store, KEY, "uuid") as source:
        assert column_bounds(source, "x") == expected
        assert column_bounds(source, "y") is None


def test_without_statistics_bounds_are_unknown(store):
    file = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1, 2]}), file, write_statistics=False)
    store.put(KEY, memoryview(file.getvalue()))
    with open_file(store, KEY, "uuid") as source:
        assert column_bounds(source, "x") is None
