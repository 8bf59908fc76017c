"""Columns that lie in two files in the same bytes are decoded once, and the rows are those of plain
reading.
"""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kartothek_cube.core.io.parquet import ParquetSource
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.cube.execute import load as shared_key_columns
from kartothek_cube.cube.execute.load import read_rest, read_with
from kartothek_cube.errors import CorruptData
from kartothek_cube.testing.stores import CountingStore

pytestmark = pytest.mark.skipif(not uses_fast_paths(), reason="the fast paths are off")

LEFT, RIGHT = "left.parquet", "right.parquet"
KEYS = pa.table({"x": [1, 1, 2, 5], "y": ["a", "b", "a", None]})
PAYLOAD = {"v1": [0.5, None, 2.5, 0.5]}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(shared_key_columns, "_FEW_ROWS", 0)


def with_payload(keys, first=False):
    """Keys before or behind a column of payload."""
    payload = pa.table({"v1": pa.array([n / 2 if n % 3 else None for n in range(len(keys))], pa.float64())})
    parts = [payload, keys] if first else [keys, payload]
    return pa.table(
        [c for part in parts for c in part.columns], schema=pa.schema([f for part in parts for f in part.schema])
    )


def put(store, key, table, **settings):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **settings)
    store.put(key, sink.getvalue().to_pybytes())


def request(schema):
    return FileRequest("cube++other", schema, tuple(sorted(schema.names)))


def both(store, schema=None, constants=None):
    """What is found beside a first file, whether it has the keys of that, and what plain reading
    finds.
    """
    left, right = (
        ParquetSource(pa.BufferReader(store.get(key)), 0).schema if schema is None else schema for key in (LEFT, RIGHT)
    )
    _, known = read_with(store, LEFT, request(left), {}, ["x", "y"])
    assert known is not None
    found, alike = read_rest(store, RIGHT, request(right), constants or {}, known)
    return found, alike, read_rows(store, RIGHT, request(right), constants or {})


def test_equal_columns_are_not_decoded(monkeypatch):
    store = open_store("hmemory://")
    put(store, LEFT, KEYS)
    put(store, RIGHT, with_payload(KEYS, first=True))
    decoded, inner = [], ParquetSource._decoded
    monkeypatch.setattr(
        ParquetSource,
        "_decoded",
        lambda self, file, groups, columns: decoded.append(list(columns)) or inner(self, file, groups, columns),
    )
    _, known = read_with(store, LEFT, request(KEYS.schema), {}, ["x", "y"])
    found, alike = read_rest(store, RIGHT, request(with_payload(KEYS).schema), {}, known)
    assert (alike, decoded, found.column_names, found.num_rows) == (True, [["x", "y"], ["v1"]], ["v1"], 4)


def test_nothing_but_keys_has_rows_all_the_same():
    store = open_store("hmemory://")
    put(store, LEFT, KEYS)
    put(store, RIGHT, KEYS.select(["y", "x"]))
    found, alike, _ = both(store)
    assert (alike, found.num_rows, found.num_columns) == (True, 4, 0)


def changed(column, values):
    position = KEYS.column_names.index(column)
    return KEYS.set_column(position, column, values)


OTHERS = {
    "another value": (changed("x", pa.array([1, 1, 3, 5])), {}),
    "another null": (changed("y", pa.array(["a", "b", None, "a"])), {}),
    "more rows": (pa.concat_tables([KEYS, KEYS]), {}),
    "row groups": (KEYS, {"row_group_size": 2}),
    "codec": (KEYS, {"compression": "zstd"}),
    "encoding": (KEYS, {"use_dictionary": False}),
    "narrower": (changed("x", pa.array([1, 1, 2, 5], pa.int32())), {}),
    "never null": (
        pa.table(KEYS.columns, schema=pa.schema([pa.field("x", pa.int64(), nullable=False), KEYS.schema.field("y")])),
        {},
    ),
    "without one": (KEYS.select(["x"]), {}),
    "nested": (changed("y", pa.array([["a"], ["b"], ["a"], None])), {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_columns_that_differ_are_decoded(name):
    keys, settings = OTHERS[name]
    store = open_store("hmemory://")
    put(store, LEFT, KEYS)
    put(store, RIGHT, with_payload(keys), **settings)
    found, alike, plain = both(store)
    assert not alike
    assert found.equals(plain)


def test_the_same_bytes_of_another_type_are_decoded():
    moments = pa.array([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2)], pa.timestamp("us"))
    numbers = moments.cast(pa.int64())
    store = open_store("hmemory://")
    for key, values in ((LEFT, numbers), (RIGHT, moments)):
        put(store, key, pa.table({"x": values, "y": ["a", "b"]}), write_statistics=False, store_schema=False)
    found, alike, plain = both(store)
    assert not alike
    assert found.equals(plain)


def test_the_value_of_a_partition_wins_over_equal_columns():
    store = open_store("hmemory://")
    put(store, LEFT, KEYS)
    put(store, RIGHT, KEYS)
    found, alike, plain = both(store, constants={"x": 9})
    assert not alike
    assert found.equals(plain)
    assert read_with(store, LEFT, request(KEYS.schema), {"x": 9}, ["x", "y"])[1] is None


def test_files_of_other_writers_are_decoded(monkeypatch):
    store = open_store("hmemory://")
    put(store, LEFT, KEYS)
    monkeypatch.setattr(shared_key_columns, "_WRITER", "parquet-mr")
    assert read_with(store, LEFT, request(KEYS.schema), {}, ["x", "y"])[1] is None


def test_few_rows_are_decoded(monkeypatch):
    store = open_store("hmemory://")
    put(store, LEFT, KEYS)
    monkeypatch.setattr(shared_key_columns, "_FEW_ROWS", 5)
    assert read_with(store, LEFT, request(KEYS.schema), {}, ["x", "y"])[1] is None


def test_nothing_more_is_asked_of_a_store_that_is_far():
    store = open_store("hmemory://")
    many = pa.table({"x": range(40_000), "y": [str(n * n) for n in range(40_000)]})
    for key in (LEFT, RIGHT):
        put(store, key, many)  # more than comes with the footer
    counted = CountingStore(store)
    read_rows(counted, LEFT, request(many.schema))
    plain = len(counted.calls)
    assert read_with(counted, LEFT, request(many.schema), {}, ["x", "y"])[1] is None
    assert len(counted.calls) == 2 * plain


def test_a_damaged_file_is_named():
    store = open_store("hmemory://")
    put(store, LEFT, KEYS)
    put(store, RIGHT, with_payload(KEYS, first=True))
    _, known = read_with(store, LEFT, request(KEYS.schema), {}, ["x", "y"])
    data = bytearray(store.get(RIGHT))
    data[4:40] = bytes(36)  # the first page, which is one of payload
    store.put(RIGHT, bytes(data))
    with pytest.raises(CorruptData, match=RIGHT):
        read_rest(store, RIGHT, request(with_payload(KEYS).schema), {}, known)


def replaced(data, old, new):
    """Another footer of the same length."""
    assert data.count(old) == 1
    return data.replace(old, new)


def test_a_writer_without_a_readable_name_is_another_writer():
    store = open_store("hmemory://")
    for key in (LEFT, RIGHT):
        put(store, key, KEYS)
    _, known = read_with(store, LEFT, request(KEYS.schema), {}, ["x", "y"])
    store.put(RIGHT, replaced(store.get(RIGHT), b"parquet-cpp-arrow", b"parquet-cpp-arr\xff\xff"))
    found, alike = read_rest(store, RIGHT, request(KEYS.schema), {}, known)
    assert (alike, found) == (False, KEYS)
    assert read_with(store, RIGHT, request(KEYS.schema), {}, ["x", "y"])[1] is None


def test_old_writers_are_others():
    """They say of pages that they are not compressed which are."""
    store = open_store("hmemory://")
    for key in (LEFT, RIGHT):
        put(store, key, KEYS)
    store.put(RIGHT, replaced(store.get(RIGHT), b"parquet-cpp-arrow version", b"parquet-cpp version 1.5.1"))
    found, alike, plain = both(store)
    assert not alike
    assert found.equals(plain)


@pytest.mark.parametrize("codec", [b"\x01", b"\x64"], ids=["none", "unknown"])
def test_a_codec_that_does_not_exist_does_not_end_the_process(codec):
    """Only the footer is damaged, of keys that are not decoded; and of payload, which is."""
    store, one = open_store("hmemory://"), KEYS.select(["x"])
    plain = {"write_statistics": False, "store_schema": False, "use_dictionary": False, "compression": "gzip"}
    for key in (LEFT, RIGHT):
        put(store, key, one, **plain)
    data, footer = store.get(RIGHT), store.get(RIGHT).rindex(b"\x01x\x15\x04\x16")
    store.put(RIGHT, data[: footer + 3] + codec + data[footer + 4 :])
    _, known = read_with(store, LEFT, request(one.schema), {}, ["x"])
    assert read_rest(store, RIGHT, request(one.schema), {}, known)[0].num_rows == 4
    with pytest.raises(CorruptData, match=RIGHT):
        read_rows(store, RIGHT, request(one.schema))


rows = st.lists(st.tuples(st.integers(0, 3), st.none() | st.sampled_from(["a", "b"])), min_size=1, max_size=12)
writing = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["snappy", "zstd", "none"]),
        "row_group_size": st.integers(1, 12),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "write_page_checksum": st.booleans(),
    }
)


def keys_of(found):
    return pa.table(
        {"x": pa.array([x for x, _ in found], pa.int64()), "y": pa.array([y for _, y in found], pa.string())}
    )


@settings(max_examples=25, deadline=None)
@given(rows, rows, st.booleans(), writing, writing, st.booleans(), st.booleans())
def test_rows_are_those_of_plain_reading(left, other, same_keys, how, how_else, written_alike, payload_first):
    store = open_store("hmemory://")
    right = left if same_keys else other
    put(store, LEFT, keys_of(left), **how)
    put(store, RIGHT, with_payload(keys_of(right), payload_first), **(how if written_alike else how_else))
    found, alike, plain = both(store)
    assert found.equals(plain.select(["v1"]) if alike else plain)
    if alike:
        assert left == right
    assert alike or not (same_keys and written_alike)
