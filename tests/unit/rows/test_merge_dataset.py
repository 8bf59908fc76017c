"""`merge_dataset`: keys of any type, sources of any form, rules for each side, bounded memory."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kartothek_cube import open_store, options
from kartothek_cube.api.cube import build_cube, plan_cube_query
from kartothek_cube.api.dataset import merge_dataset, read_table_arrow, store_dataframes_as_dataset, update_rows
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.cubes import CUBE, SEED
from tests.support.datasets import UUID, Stream, index, index_of_files, rows
from tests.support.rows import store_rows

OLD = pa.table({"x": [1, 2, 2, None], "v1": ["a", "b", "c", "d"], "v2": [1.0, 2.0, 3.0, 4.0]})
NEW = pa.table({"x": [2, 3], "v1": ["B", "C"], "v2": [20.0, 30.0]})


@pytest.fixture
def store():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [OLD[:2], OLD[2:]])
    return store


# --- the rules ------------------------------------------------------------------------------------

RULES = {
    ("update", "insert", None): [(1, "a"), (2, "B"), (2, "B"), (3, "C"), (None, "d")],
    ("update", "ignore", None): [(1, "a"), (2, "B"), (2, "B"), (None, "d")],
    ("ignore", "insert", None): [(1, "a"), (2, "b"), (2, "c"), (3, "C"), (None, "d")],
    ("ignore", "ignore", None): [(1, "a"), (2, "b"), (2, "c"), (None, "d")],
    ("delete", "insert", None): [(1, "a"), (3, "C"), (None, "d")],
    ("delete", "ignore", None): [(1, "a"), (None, "d")],
    ("update", "insert", "delete"): [(2, "B"), (2, "B"), (3, "C")],
    ("update", "ignore", "delete"): [(2, "B"), (2, "B")],
    ("ignore", "ignore", "delete"): [(2, "b"), (2, "c")],
    ("delete", "insert", "delete"): [(3, "C")],
    ("delete", "ignore", "delete"): [],
}


@pytest.mark.parametrize("when", RULES, ids=str)
def test_the_rules_of_a_merge(store, when):
    matched, not_matched, by_source = when
    report = merge_dataset(
        NEW,
        store,
        UUID,
        "x",
        when_matched=matched,
        when_not_matched=not_matched,
        when_not_matched_by_source=by_source,
    )
    assert rows(store, "x", "v1") == RULES[when]
    deleted = 2 * (matched == "delete") + 2 * (by_source == "delete")
    assert (report.matched, report.deleted) == (2, deleted)
    assert (report.updated, report.inserted) == (2 * (matched == "update"), 1 * (not_matched == "insert"))


def test_an_error_is_only_raised_for_keys_that_are_there(store):
    assert merge_dataset(NEW[1:], store, UUID, "x", when_matched="error").inserted == 1
    assert (3, "C") in rows(store, "x", "v1")


def test_columns_that_the_source_lacks_stay_and_are_null_in_new_rows(store):
    merge_dataset(NEW.select(["x", "v2"]), store, UUID, "x")
    assert rows(store) == [("a", 1.0, 1), ("b", 20.0, 2), ("c", 20.0, 2), ("d", 4.0, None), (None, 30.0, 3)]


def test_a_null_of_the_source_is_set(store):
    merge_dataset(pa.table({"x": [2], "v1": pa.array([None], pa.string())}), store, UUID, "x")
    assert rows(store, "v1", predicates=[[("x", "==", 2)]]) == [(None,), (None,)]


def test_no_rows_delete_all_by_source(store):
    assert merge_dataset(NEW[:0], store, UUID, "x").commit is None
    report = merge_dataset(NEW[:0], store, UUID, "x", when_not_matched_by_source="delete")
    assert (report.deleted, report.files_removed) == (4, 2)
    assert rows(store) == []


def test_a_partition_column_that_is_no_key_moves_rows():
    store = MemoryStore()
    store_rows(store)
    source = pa.table({"x": [0, 1, 2], "p": ["b", "a", "c"]})
    report = merge_dataset(source, store, UUID, "x")
    assert (report.updated, report.files_rewritten, report.files_added, report.inserted) == (3, 2, 2, 0)
    assert rows(store, "x", "p", predicates=[[("x", "<", 4)]]) == [(0, "b"), (1, "a"), (2, "c"), (3, "b")]
    assert index(store, "i1") == index_of_files(store, "i1")


def test_moved_rows_keep_what_the_source_lacks():
    store = MemoryStore()
    store_rows(store)
    merge_dataset(pa.table({"x": [3], "p": ["a"]}), store, UUID, "x")
    assert rows(store, "x", "p", "i1", "v1", predicates=[[("x", "==", 3)]]) == [(3, "a", "0b", 0.75)]


# --- forms of the source --------------------------------------------------------------------------

FRAME = pd.DataFrame({"x": [2, 3], "v1": ["B", "C"], "v2": [20.0, 30.0]})
FORMS = {
    "pandas": lambda: FRAME,
    "pandas of Arrow": lambda: NEW.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas categories": lambda: FRAME.astype({"v1": "category"}),
    "polars": lambda: pl.from_arrow(NEW),
    "table": lambda: NEW,
    "reader": lambda: NEW.to_reader(1),
    "stream of another library": lambda: Stream(NEW),
    "list": lambda: [NEW[:1], NEW[1:]],
    "generator": lambda: (NEW[n : n + 1] for n in range(2)),
    "mixed": lambda: [FRAME[:1], NEW[1:]],
    "dict": lambda: {"data": {"table": NEW}},
    "empty pieces": lambda: [NEW[:0], NEW, NEW[:0]],
    "other order of columns": lambda: [NEW[:1], NEW[1:].select(["v2", "x", "v1"])],
    "large text": lambda: NEW.set_column(1, "v1", NEW["v1"].cast(pa.large_string())),
    "dictionary": lambda: NEW.set_column(1, "v1", NEW["v1"].dictionary_encode()),
    "narrow numbers": lambda: NEW.set_column(0, "x", NEW["x"].cast(pa.int8())),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("limit", [None, 1])
def test_forms_of_the_source(store, form, limit):
    chosen = options(bytes_in_flight=limit) if limit else None
    assert merge_dataset(FORMS[form](), store, UUID, "x", options=chosen).inserted == 1
    assert rows(store, "x", "v1") == RULES["update", "insert", None]
    assert read_table_arrow(UUID, store).schema.equals(pa.schema([("v1", "string"), ("v2", "double"), ("x", "int64")]))


# --- types of keys --------------------------------------------------------------------------------

UTC = dt.UTC
KEYS = {
    "int64": (pa.int64(), [2**53, 2**53 + 1, -(2**63)]),
    "uint64": (pa.uint64(), [2**64 - 1, 2**63, 0]),
    "int8": (pa.int8(), [-128, 127, 0]),
    "float64": (pa.float64(), [0.1, float("inf"), -1.5]),
    "float32": (pa.float32(), [0.5, float("-inf"), 1.5]),
    "bool": (pa.bool_(), [True, False]),
    "text": (pa.string(), ["", "ä", "a\0"]),
    "long text": (pa.string(), ["x" * 100 + "a", "x" * 100 + "b", "x" * 100]),
    "binary": (pa.binary(), [b"", b"a\0", b"\xff"]),
    "fixed": (pa.binary(2), [b"ab", b"a\0", b"\xff\xff"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29)]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(2024, 2, 29, 1), dt.datetime(1969, 1, 1), dt.datetime(2024, 2, 29)]),
    "utc": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 2, 29, 1, tzinfo=UTC), dt.datetime(1969, 1, 1, tzinfo=UTC)]),
    "decimal": (pa.decimal128(6, 2), [Decimal("-0.50"), Decimal("1.00"), Decimal("9999.99")]),
    "time": (pa.time64("us"), [dt.time(1, 2, 3), dt.time(0), dt.time(23, 59)]),
    "duration": (pa.duration("us"), [dt.timedelta(1), dt.timedelta(-1), dt.timedelta(0)]),
}
LAYOUTS = {"plain": {}, "index": {"secondary_indices": ["k"]}, "partition": {"partition_on": ["k"]}}
NO_PARTITION = {"decimal", "time", "duration", "utc", "fixed"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", KEYS)
def test_keys_of_any_type(name, layout):
    kind, values = KEYS[name]
    if layout == "partition" and (name in NO_PARTITION or "a\0" in values or b"\xff" in values):
        pytest.skip("no partition column")
    if layout == "index" and name in {"decimal", "time", "duration"}:
        pytest.skip("no index")
    store = MemoryStore()
    old = pa.table({"k": pa.array(values[:-1], kind), "v1": range(len(values) - 1)})
    store_dataframes_as_dataset(store, UUID, [old[:1], old[1:]], **LAYOUTS[layout])
    new = pa.table({"k": pa.array(values[1:], kind), "v1": [10 * n for n in range(1, len(values))]})
    report = merge_dataset(new, store, UUID, "k")
    assert (report.matched, report.inserted) == (len(values) - 2, 1)
    found = dict(
        zip(*read_table_arrow(UUID, store, columns=["k", "v1"]).select(["k", "v1"]).to_pydict().values(), strict=True)
    )
    assert found == {value: 10 * n for n, value in enumerate(values)}


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_zero_finds_minus_zero(layout, zero):
    store = MemoryStore()
    old = pa.table({"k": [zero, 5.0], "v1": [1, 2]})
    store_dataframes_as_dataset(store, UUID, [old], **LAYOUTS[layout])
    report = merge_dataset(pa.table({"k": [-zero], "v1": [7]}), store, UUID, "k")
    assert (report.matched, report.inserted) == (1, 0)
    assert rows(store, "v1") == [(2,), (7,)]


@pytest.mark.parametrize("layout", [{}, {"secondary_indices": ["k"]}])
def test_nulls_and_nans_of_the_dataset_have_no_key(layout):
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [pa.table({"k": [None, float("nan"), 1.0], "v1": [1, 2, 3]})], **layout)
    source = pa.table({"k": [1.0, 2.0], "v1": [10, 20]})
    report = merge_dataset(source, store, UUID, "k")
    assert (report.matched, report.inserted) == (1, 1)
    assert rows(store, "v1") == [(1,), (10,), (2,), (20,)]
    report = merge_dataset(source, store, UUID, "k", when_not_matched_by_source="delete")
    assert (report.matched, report.deleted) == (2, 2)
    assert rows(store, "v1") == [(10,), (20,)]


def test_keys_of_several_columns_where_one_is_null(store):
    source = pa.table({"x": [2, 2], "v1": ["b", "d"], "v2": [20.0, 40.0]})
    report = merge_dataset(source, store, UUID, ["v1", "x"])
    assert (report.matched, report.inserted) == (1, 1)
    assert rows(store, "v1", "x", "v2") == [
        ("a", 1, 1.0),
        ("b", 2, 20.0),
        ("c", 2, 3.0),
        ("d", 2, 40.0),
        ("d", None, 4.0),
    ]


def test_a_key_column_that_is_null_throughout():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [pa.table({"k": pa.nulls(2), "v1": [1, 2]})])
    report = merge_dataset(pa.table({"k": ["a"], "v1": [9]}), store, UUID, "k")
    assert (report.matched, report.inserted) == (0, 1)
    assert rows(store, "k", "v1") == [("a", 9), (None, 1), (None, 2)]


def test_the_keys_are_columns_of_the_index_and_others():
    store = MemoryStore()
    store_rows(store)
    source = pa.table({"i1": ["0a", "0a", "9z"], "x": [1, 4, 1], "p": ["a"] * 3, "v1": [7.0, 8.0, 9.0]})
    report = merge_dataset(source, store, UUID, ["i1", "x"])
    assert (report.matched, report.inserted) == (1, 2)
    assert rows(store, "v1", predicates=[[("i1", "==", "0a")]]) == [(0.0,), (7.0,), (8.0,)]


# --- memory ---------------------------------------------------------------------------------------

FILES, COUNT = 12, 4_000


def piece(n, p):
    """Rows whose payload is much wider than their keys."""
    payload = pa.array([f"{n:250d}"] * COUNT)
    return pa.table({"x": np.arange(n * COUNT, (n + 1) * COUNT), "v1": payload, "p": [p] * COUNT})


class Peak(StoreView):
    """Notes how much memory Arrow holds whenever the store is called."""

    def __init__(self, inner):
        super().__init__(inner)
        self.start, self.most = pa.total_allocated_bytes(), 0

    def note(self):
        self.most = max(self.most, pa.total_allocated_bytes() - self.start)

    def around(self, operation, key, action):
        result = action()
        self.note()
        return result


def noted(peak, pieces):
    for rows_of in pieces:
        yield rows_of
        peak.note()


@pytest.mark.parametrize("kind", ["update", "insert", "move"])
def test_a_merge_larger_than_memory(tmp_path, kind):
    """What is held is a small part of the source and of the dataset."""
    peak = Peak(open_store(tmp_path))
    first = (piece(n, "a") for n in range(FILES))
    store_dataframes_as_dataset(peak, UUID, first, partition_on="p")
    add = FILES if kind == "insert" else 0
    other = "b" if kind == "move" else "a"
    source = (piece(n + add, other) for n in range(FILES))
    peak.start, peak.most = pa.total_allocated_bytes(), 0
    size = piece(0, other).nbytes
    with options(threads=1, bytes_in_flight=4 * size):
        report = merge_dataset(noted(peak, source), peak, UUID, "x")
    assert size < peak.most < FILES * size / 2
    assert report.inserted == (FILES * COUNT if kind == "insert" else 0)
    assert report.updated == (0 if kind == "insert" else FILES * COUNT)
    found = read_table_arrow(UUID, peak)
    assert found.num_rows == FILES * COUNT * (2 if kind == "insert" else 1)
    assert found["p"].unique().to_pylist() == [other]


# --- cubes ----------------------------------------------------------------------------------------


def test_changed_since_shows_the_partitions_of_changed_rows():
    store = MemoryStore()
    build_cube(SEED, CUBE, store)
    since = plan_cube_query(CUBE, store).commits
    update_rows("cube++seed", store, [[("p", "==", 1), ("y", "==", "b")]], {"v1": 9.0})
    plan = plan_cube_query(CUBE, store, changed_since=since)
    assert [group.key for group in plan.groups] == [{"p": 1}]
    merge_dataset(SEED.slice(1, 1), store, "cube++seed", ["x", "y", "p"])
    plan = plan_cube_query(CUBE, store, changed_since=since)
    assert [group.key for group in plan.groups] == [{"p": 0}, {"p": 1}]
