"""Rows of files that satisfy predicates: what these ask for is read first, the rest only where rows
stay; texts that repeat as dictionaries.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.expressions.predicates import Clause, is_null, matching_rows, matching_values
from kartothek_cube.core.io import parquet as parquet_source
from kartothek_cube.core.io import parquet_rows
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.parquet import ParquetSource, _DistantFile, open_file
from kartothek_cube.core.io.reader import FileRequest, open_rows, read_rows
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CorruptData

pytestmark = pytest.mark.usefixtures("fast_paths")

KEY = "uuid/table/f.parquet"
SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.string()), ("v1", pa.float64()), ("v2", pa.string())])


class NotingStore(MemoryStore):
    """Notes which bytes of a file are asked for besides its end."""

    def __init__(self):
        super().__init__()
        self.spans = []

    def ranges(self, key, spans):
        self.spans.append(list(spans))
        return super().ranges(key, spans)


class DistantStore(NotingStore):
    """Gives little more than the footer of a file, as if it were large."""

    def tail(self, key, n):
        data = self.get(key)
        return super().tail(key, min(n, int.from_bytes(data[-8:-4], "little") + 8))


class Reads:
    """What is decoded: row groups and columns, and which of them as dictionaries."""

    def __init__(self, monkeypatch):
        self.steps, self.encoded = [], []
        read, make = ParquetSource._decoded, pq.ParquetFile.__init__

        def decoded(source, file, groups, columns):
            self.steps.append((list(groups), list(columns)))
            return read(source, file, groups, columns)

        def init(file, *args, read_dictionary=None, **options):
            self.encoded += read_dictionary or []
            make(file, *args, read_dictionary=read_dictionary, **options)

        monkeypatch.setattr(ParquetSource, "_decoded", decoded)
        monkeypatch.setattr(pq.ParquetFile, "__init__", init)


@pytest.fixture
def every_size(monkeypatch):
    """What is worth it for large files only is done with small ones."""
    monkeypatch.setattr(parquet_source, "_MANY_ROWS_OF_A_SOURCE", 0)
    monkeypatch.setattr(parquet_rows, "_FEW_ROWS", 0)


def put(store, table, **options):
    store.put(KEY, memoryview(ParquetFormat(**options).encode(table)))
    return store


def rows(n=1_000):
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "x": rng.permutation(n),
            "y": [f"text {i % 7}" for i in range(n)],
            "v1": rng.random(n),
            "v2": [f"{i}" for i in range(n)],
        }
    )


def read(store, columns, *clauses):
    return read_rows(store, KEY, FileRequest("uuid", SCHEMA, tuple(columns), (clauses,) if clauses else None))


# --- one step after the other ---------------------------------------------------------------------


@pytest.mark.parametrize("make", [MemoryStore, DistantStore])
def test_the_rest_is_read_only_of_row_groups_where_a_row_stays(make, monkeypatch):
    table = rows()
    store, seen = put(make(), table, chunk_size=100), Reads(monkeypatch)
    position = table.column("x").to_pylist().index(500)
    assert read(store, ["v1", "x"], Clause("x", "==", 500)).to_pylist() == [
        table.select(["v1", "x"]).to_pylist()[position]
    ]
    (first, asked), (rest, others) = seen.steps
    assert (asked, others, rest) == (["x"], ["v1"], [position // 100])
    assert set(rest) < set(first)


def test_where_no_row_stays_nothing_else_is_read(monkeypatch):
    store, seen = put(MemoryStore(), rows()), Reads(monkeypatch)
    assert read(store, ["v1", "v2"], Clause("y", "==", "text 77")).num_rows == 0
    assert seen.steps == [([0], ["y"])]


@pytest.mark.usefixtures("only_fast")
def test_of_a_remote_file_little_comes_at_once_and_much_step_by_step(monkeypatch):
    store = put(NotingStore(), rows(32_000), chunk_size=1_000)
    read(store, ["v1", "v2"], Clause("x", "==", 500))
    assert len(store.spans) == 1
    monkeypatch.setattr(parquet_source, "_AT_ONCE", 0)
    monkeypatch.setattr(parquet_source, "_GAP", 0)
    read(store, ["v1", "v2"], Clause("x", "==", 500))
    at_once, few, rest = (sum(stop - start for start, stop in spans) for spans in store.spans)
    assert few + rest < at_once / 2
    assert rest < few


@pytest.mark.usefixtures("only_fast")
def test_of_a_large_remote_row_group_few_bytes_are_held():
    n, nbytes = 200_000, 2**20
    store = put(
        NotingStore(),
        pa.table({"x": np.random.default_rng(0).integers(0, 2**62, n), "v1": np.random.default_rng(1).random(n)}),
    )
    is_small, pieces = open_rows(store, KEY, FileRequest("uuid", SCHEMA, ("x", "v1")), nbytes)
    assert (is_small, sum(piece.num_rows for piece in pieces)) == (False, n)
    assert max(stop - start for spans in store.spans for start, stop in spans) <= nbytes
    assert sum(stop - start for spans in store.spans for start, stop in spans) <= len(store.get(KEY))


def test_what_came_with_other_bytes_is_not_asked_for_again():
    """Bytes between two wanted pieces come with them, and are kept while they are needed."""
    store = NotingStore()
    store.put(KEY, bytes(range(100)))
    file = _DistantFile(store, KEY, b"", 100)
    file.fetch([(0, 5), (20, 25)])
    file.fetch([(10, 15), (30, 35)])
    file.seek(10)
    assert (bytes(file.read(5)), store.spans) == (bytes(range(10, 15)), [[(0, 25)], [(30, 35)]])


def test_a_remote_file_takes_no_memory_for_bytes_that_are_not_read():
    """A server may say any size."""

    class Vast(DistantStore):
        def tail(self, key, n):
            return super().tail(key, n)[0], 2**60

    store = put(Vast(), rows())
    with pytest.raises(CorruptData, match=KEY):
        read(store, ["x"], Clause("x", ">", 5))


@pytest.mark.parametrize("make", [MemoryStore, DistantStore])
def test_a_column_that_is_called_like_a_part_of_another_one_has_its_own_rows_and_statistics(every_size, make):
    parts = pa.array(
        [{"b": "x", "c": n, "d": [{"e": n}], "m": [("k", n)]} for n in range(4)],
        pa.struct(
            {
                "b": pa.string(),
                "c": pa.int64(),
                "d": pa.list_(pa.struct({"e": pa.int64()})),
                "m": pa.map_(pa.string(), pa.int64()),
            }
        ),
    )
    table = pa.table({"a": parts, "a.b": ["p", "q", "r", "s"], "x": [1, 2, 3, 4]})
    store = put(make(), table, chunk_size=2)
    for columns in (["a", "x"], ["a.b"], ["x"], ["a", "a.b"]):
        request = FileRequest("uuid", table.schema, tuple(columns), ((Clause("a.b", "==", "r"),),))
        assert read_rows(store, KEY, request).to_pylist() == table.select(columns).slice(2, 1).to_pylist()
        assert [piece.to_pylist() for piece in open_rows(store, KEY, request, 1)[1]] == [
            table.select(columns).slice(2, 1).to_pylist()
        ]


# --- dictionaries ---------------------------------------------------------------------------------


def test_texts_that_repeat_are_read_as_dictionaries_and_come_as_texts(every_size, monkeypatch):
    store, seen = put(MemoryStore(), rows(20_000)), Reads(monkeypatch)
    table = read(store, ["y", "v2", "x"])
    assert (seen.encoded, table.schema.types) == (["y"], [pa.string(), pa.string(), pa.int64()])
    assert table == pq.read_table(pa.BufferReader(store.get(KEY))).select(["y", "v2", "x"])


def test_small_files_are_not_looked_at_for_that(monkeypatch):
    store, seen = put(MemoryStore(), rows(20_000)), Reads(monkeypatch)
    read(store, ["y"])
    assert seen.encoded == []


def test_texts_that_are_longer_together_than_an_array_can_be_come_in_pieces(monkeypatch):
    monkeypatch.setattr(parquet_rows, "_LONGEST_TEXTS", 20)
    column = pa.chunked_array(
        [pa.array(["abcde", None, "ab"] * 5).dictionary_encode(), pa.array(["", "a"]).dictionary_encode()]
    )
    found = parquet_rows.conform(column, pa.string(), "y", KEY)
    assert (found.to_pylist(), [len(chunk) for chunk in found.chunks]) == (
        ["abcde", None, "ab"] * 5 + ["", "a"],
        [4, 4, 4, 3, 2],
    )


@pytest.mark.parametrize("codes", [[0, 5], [0, -1]])
def test_codes_that_the_dictionary_lacks_are_no_rows(codes):
    chunk = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(["a", "b"]), safe=False)
    with pytest.raises(pa.ArrowException):
        matching_values(chunk, Clause("y", "==", "a"))
    with pytest.raises(pa.ArrowException):
        parquet_rows.conform(pa.chunked_array([chunk]), pa.string(), "y", KEY)


# --- the same rows as of the whole table ----------------------------------------------------------

values = {
    "x": st.integers(-3, 3),
    "y": st.sampled_from(["", "a", "b", "c"]),
    "v1": st.sampled_from([0.0, 1.5, float("nan")]),
    "v2": st.sampled_from(["a", "b" * 9]),
}
records = st.lists(st.fixed_dictionaries({name: st.none() | value for name, value in values.items()}), max_size=40)


@st.composite
def clauses(draw):
    column = draw(st.sampled_from(list(values)))
    op = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in"]))
    value = (
        values[column].filter(lambda constant: not is_null(constant))
        if op in ("<", "<=", ">", ">=")
        else st.none() | values[column]
    )
    constant = draw(st.lists(value, max_size=3).map(tuple) if op == "in" else value)
    return Clause(column, op, constant)


@pytest.mark.parametrize("make", [MemoryStore, DistantStore])
@given(
    records,
    st.integers(1, 15),
    st.lists(st.lists(clauses(), min_size=1, max_size=2).map(tuple), min_size=1, max_size=2),
    st.sets(st.sampled_from(list(values))),
)
def test_the_rows_are_those_of_the_whole_table(make, records, size, predicates, columns):
    table = pa.Table.from_pylist(records, schema=SCHEMA)
    store = put(make(), table, chunk_size=size)
    request = FileRequest("uuid", SCHEMA, tuple(sorted(columns)), tuple(predicates))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_source, "_MANY_ROWS_OF_A_SOURCE", 0)
        patch.setattr(parquet_rows, "_FEW_ROWS", 0)
        found = read_rows(store, KEY, request)
    expected = table.filter(pa.array(matching_rows(table, tuple(predicates)))).select(sorted(columns))
    assert found.num_rows == expected.num_rows
    assert str(found.to_pylist()) == str(expected.to_pylist())  # NaN
    assert found.schema == expected.schema
    with open_file(store, KEY, "uuid") as source:
        assert source.is_near == (
            make is MemoryStore
            or len(store.get(KEY)) == source.size == int.from_bytes(store.get(KEY)[-8:-4], "little") + 8
        )


@given(st.lists(st.none() | values["y"], max_size=20), clauses())
def test_dictionaries_match_as_their_values_do(texts, clause):
    plain = pa.array(texts, pa.string())
    if clause.column in ("y", "v2"):
        encoded = pa.chunked_array([plain.dictionary_encode(), plain.slice(3).dictionary_encode()])
        expected = np.concatenate([matching_values(plain, clause), matching_values(plain.slice(3), clause)])
        assert matching_values(encoded, clause).tolist() == expected.tolist()
