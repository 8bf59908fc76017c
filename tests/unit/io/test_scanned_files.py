"""Rows of several files by one scan: the same as file by file, or no scan at all."""

from __future__ import annotations

import datetime as dt
import io
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.expressions.evaluate import matching_rows
from kartothek_cube.core.expressions.predicates import Clause, Constants, columns_of, is_null
from kartothek_cube.core.io import parquet_footer
from kartothek_cube.core.io._fast import scanned_files
from kartothek_cube.core.io._fast.scanned_files import implied_filter, scan_matching
from kartothek_cube.core.io.reader import FileRequest, read_rows, read_together
from kartothek_cube.core.runtime.telemetry import counting
from kartothek_cube.core.stores.local import LocalStore
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.errors import CorruptData

SCHEMA = pa.schema(
    [
        ("x", pa.int64()),
        ("y", pa.date32()),
        ("z", pa.timestamp("us")),
        ("i1", pa.int8()),
        ("v1", pa.float64()),
        ("b", pa.bool_()),
        ("t", pa.string()),
    ]
)
TODAY = dt.date(2024, 2, 29)
VALUES = {
    "x": [0, 1, 2, 2**62, None],
    "y": [TODAY, dt.date(1969, 12, 31), None],
    "z": [dt.datetime(2024, 2, 29, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 1), None],
    "i1": [-1, 0, 1, None],
    "v1": [-0.0, 0.0, 1.5, float("nan"), None],
    "b": [True, False, None],
}
# Also constants that no value of the column equals.
CONSTANTS = {**VALUES, "x": [*VALUES["x"], 1.5, 2**70], "i1": [*VALUES["i1"], 300, 0.5], "y": [TODAY, "2024-02-29"]}
FOUND = ((Clause("x", "==", 1),),)


@pytest.fixture(autouse=True, scope="module")
def any_file():
    """Files of few rows suit, too, and footers are kept at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanned_files, "_FEWEST_ROWS", 0)
        patch.setattr(parquet_footer, "_SETTLED_NS", -(10**12))
        patch.setattr("kartothek_cube.core.runtime.fast_paths._IS_ON", True)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("scanned")


@pytest.fixture
def local(tmp_path):
    return LocalStore(tmp_path, fsync=False)


def put(store, name, table, **options):
    key, sink = f"uuid/table/{name}.parquet", io.BytesIO()
    pq.write_table(table, sink, **options)
    store.put(key, sink.getvalue())
    return key


def opened(store, keys, columns=("x", "v1")):
    """The same keys, once this process has opened them."""
    for key in keys:
        read_rows(store, key, FileRequest("uuid", SCHEMA, columns))
    return keys


def three(store, **more):
    """Three files of four rows with a 1 in the second and the third."""
    columns = [pa.table({"x": [k, 1, 5, 1] if k else [7] * 4, "v1": [float(k)] * 4, **more}) for k in range(3)]
    return opened(store, [put(store, k, table, row_group_size=2) for k, table in enumerate(columns)])


def scanned(store, keys, predicates=FOUND, columns=("v1", "x")):
    return scan_matching(store, keys, columns, SCHEMA, predicates)


# --- as file by file ------------------------------------------------------------------------------


@st.composite
def clauses(draw):
    column = draw(st.sampled_from(sorted(VALUES)))
    op = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in", "is distinct from"]))
    if op in ("in", "not in"):
        return Clause(column, op, Constants(draw(st.lists(st.sampled_from(CONSTANTS[column]), max_size=3))))
    has_order = op in ("<", "<=", ">", ">=")
    return Clause(column, op, draw(st.sampled_from([c for c in CONSTANTS[column] if not (has_order and is_null(c))])))


def predicates_of(most):
    return st.lists(st.lists(clauses(), min_size=1, max_size=2).map(tuple), min_size=1, max_size=most).map(tuple)


def some_rows(seed, rows):
    random = Random(seed)
    columns = {name: [random.choice(values) for _ in range(rows)] for name, values in VALUES.items()}
    return pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})


@given(
    seeds=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=5),
    group_rows=st.integers(1, 4),
    predicates=predicates_of(2),
    columns=st.sampled_from([("x", "v1"), ("b", "y", "z"), ("i1",)]),
)
def test_a_scan_finds_what_is_found_file_by_file(folder, seeds, group_rows, predicates, columns):
    store = LocalStore(folder, fsync=False)
    keys = [put(store, i, some_rows(*seed), row_group_size=group_rows) for i, seed in enumerate(seeds)]
    asked = FileRequest("uuid", SCHEMA, columns, predicates)
    with counting() as apart:
        alone = [read_rows(store, key, asked) for key in keys]
    for _ in range(2):  # the second time, Arrow knows the files
        with counting() as together:
            table, counts = scan_matching(store, keys, columns, SCHEMA, predicates)
        assert counts == [len(rows) for rows in alone]
        assert repr(table.to_pylist()) == repr(pa.concat_tables(alone).to_pylist())  # NaN, and zeros with their sign
        assert table.schema.equals(alone[0].schema)
        assert [together.counts.files_read, together.counts.bytes_read] == [
            apart.counts.files_read,
            apart.counts.bytes_read,
        ]


@given(seed=st.integers(0, 1000), predicates=predicates_of(3))
def test_a_filter_of_arrow_drops_no_row_that_matches(seed, predicates):
    table = some_rows(seed, 12)
    implied, mask = implied_filter(predicates, SCHEMA), matching_rows(table, predicates)
    if implied is not None:
        passed = table.append_column("at", pa.array(range(12))).filter(implied).column("at").to_pylist()
        assert set(np.flatnonzero(mask).tolist()) <= set(passed)


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        (Clause("x", "==", 1), "(x == 1)"),
        (Clause("i1", "<=", 0), "(i1 <= 0)"),
        (Clause("y", ">", TODAY), "(y > 2024-02-29)"),
        (Clause("x", "in", Constants([2, 1])), "is_in(x"),
        (Clause("x", "in", Constants([])), "is_in(x"),
        (Clause("x", "in", Constants(range(1000))), None),
        (Clause("x", "in", Constants([1, None])), None),
        (Clause("x", "==", None), None),
        (Clause("x", "!=", 1), None),
        (Clause("x", "<", 1.5), None),
        (Clause("i1", "<", 300), None),
        (Clause("v1", "<", 1.0), None),
        (Clause("b", "==", True), None),
    ],
    ids=str,
)
def test_what_arrow_compares_is_exact(clause, expected):
    found = implied_filter(((clause,),), SCHEMA)
    assert found is None if expected is None else expected in str(found)


def test_the_reader_takes_a_scan_where_it_suits(local, monkeypatch):
    keys, taken = three(local), []
    monkeypatch.setattr(scanned_files, "scan_matching", lambda *asked: taken.append(asked[1]) or scan_matching(*asked))
    found, counts = read_together(local, [(key, {}) for key in keys], FileRequest("uuid", SCHEMA, ("x",), FOUND), 2**20)
    assert (found.to_pydict(), counts, taken) == ({"x": [1] * 5}, [0, 3, 2], [keys])
    read_together(local, [(keys[0], {})], FileRequest("uuid", SCHEMA, ("x",), FOUND), 2**20)
    assert len(taken) == 1  # of one file nothing is gained


# --- where none suits -----------------------------------------------------------------------------


def test_files_that_nobody_has_opened_are_not_scanned(local):
    keys = three(local)
    new = put(local, "new", pa.table({"x": [1], "v1": [0.0]}))
    assert scanned(local, [*keys, new]) is None
    assert scanned(local, opened(local, [*keys, new]))[1] == [0, 3, 2, 1]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"x": [1]}),
        pa.table({"x": [1], "v1": pa.array([1], pa.float32())}),
        pa.table({"x": pa.array([1], pa.int8()), "v1": [1.0]}),
        pa.table({"x": pa.nulls(1), "v1": [1.0]}),
    ],
    ids=["missing", "float", "int8", "null"],
)
def test_files_of_other_types_are_not_scanned(local, table):
    keys = [*three(local), *opened(local, [put(local, "other", table)])]
    assert scanned(local, keys) is None
    _, counts = read_together(local, [(key, {}) for key in keys], FileRequest("uuid", SCHEMA, ("x",), FOUND), 2**20)
    assert counts == [0, 3, 2, table.column("x").to_pylist().count(1)]


def test_texts_are_not_scanned(local):
    keys = three(local, t=["a"] * 4)
    assert scanned(local, keys, columns=("t",)) is None
    assert scanned(local, keys, ((Clause("t", "==", "a"),),)) is None


@pytest.mark.parametrize(("bound", "most"), [("_MOST_ROWS", 1), ("_MOST_VALUES", 11), ("_FEWEST_ROWS", 5)])
def test_a_scan_is_neither_large_nor_tiny(local, monkeypatch, bound, most):
    keys = three(local)
    monkeypatch.setattr(scanned_files, bound, most)
    assert scanned(local, keys) is None


def test_the_largest_scan(local, monkeypatch):
    keys = three(local)
    monkeypatch.setattr(scanned_files, "_MOST_ROWS", 4)
    monkeypatch.setattr(scanned_files, "_MOST_VALUES", 16)  # two columns of eight rows: one file has none of use
    assert scanned(local, keys)[1] == [0, 3, 2]


def test_a_file_twice_is_not_scanned(local):
    keys = three(local)
    assert scanned(local, [keys[1], keys[1]]) is None


def test_a_store_without_paths_has_no_scan():
    store = MemoryStore()
    assert scanned(store, three(store)) is None


def test_a_file_that_is_replaced_meanwhile_is_read_again(local, monkeypatch):
    keys, scan = three(local), scanned_files._scan

    def replaced(*asked):
        found = scan(*asked)
        put(local, 1, pa.table({"x": [1, 1], "v1": [9.0, 9.0]}))
        return found

    monkeypatch.setattr(scanned_files, "_scan", replaced)
    asked = FileRequest("uuid", SCHEMA, ("v1",), FOUND)
    found, counts = read_together(local, [(key, {}) for key in keys], asked, 2**20)
    assert (found.to_pydict(), counts) == ({"v1": [9.0, 9.0, 2.0, 2.0]}, [0, 2, 2])


def test_a_file_that_is_gone_meanwhile_is_named(local):
    keys = three(local)
    local.delete(keys[2])
    assert scanned(local, keys) is None


@pytest.mark.parametrize("column", ["x", "v1"])
def test_a_damaged_file_is_named(local, column):
    table = pa.table({"x": [1] * 4, "v1": [0.5] * 4})
    key = put(local, "damaged", table, write_page_checksum=True, compression="NONE", use_dictionary=False)
    data = bytearray(local.get(key))
    chunk = pq.read_metadata(io.BytesIO(bytes(data))).row_group(0).column(table.column_names.index(column))
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 255
    local.put(key, bytes(data))
    opened(local, [key], columns=tuple(set(table.column_names) - {column}))
    keys = [*three(local), key]
    assert scanned(local, keys) is None
    with pytest.raises(CorruptData, match="damaged"):
        read_together(local, [(k, {}) for k in keys], FileRequest("uuid", SCHEMA, ("v1",), FOUND), 2**20)


def test_columns_of_the_predicates_need_not_be_asked_for(local):
    predicates = ((Clause("v1", ">", 1.0),),)
    assert columns_of(predicates) == {"v1"}
    table, counts = scanned(local, three(local), predicates, columns=("x",))
    assert (table.to_pydict(), counts) == ({"x": [2, 1, 5, 1]}, [0, 0, 4])
