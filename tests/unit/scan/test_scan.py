from __future__ import annotations

import datetime as dt
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.expressions.predicates import OPERATORS, Clause, matching_rows, parse_predicates
from kartothek_cube.core.scan.plan import (
    check_predicate_columns,
    indexed_clauses,
    needed_indices,
    plan_scan,
    rejects_null,
)
from kartothek_cube.core.snapshots.loader import with_indices
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidType, UnknownColumn
from tests.support.commits import UUID, write

ROWS = {"p": ["a", "a", "b", "c"], "x": [1, 2, 2, None], "y": ["u", None, "v", "u"]}


@pytest.fixture(scope="module")
def written():
    store = MemoryStore()
    snapshot = write(
        store, pa.table({**ROWS, "x": pa.array(ROWS["x"], pa.int64())}), on=["p"], index=["x", "y"], label="f"
    )
    return store, with_indices(store, snapshot, ["x", "y"])


def plan(written, *conjunctions):
    _, snapshot = written
    predicates = parse_predicates([list(c) for c in conjunctions]) if conjunctions else None
    needed = needed_indices(snapshot, predicates)
    found = plan_scan(snapshot, "table", ["x"], predicates, {c: snapshot.indices[c] for c in needed})
    return [task.constants["p"] for task in found.tasks()], frozenset(needed)


@pytest.mark.parametrize(
    ("clauses", "files", "indices"),
    [
        ([("p", "==", "a")], "a", ""),
        ([("p", "!=", "a")], "bc", ""),
        ([("p", "in", ["a", "c", "z"])], "ac", ""),
        ([("x", "==", 2)], "ab", "x"),
        ([("x", ">", 1), ("p", ">", "a")], "b", "x"),
        ([("x", "==", 2), ("y", "==", "u")], "a", "xy"),
        ([("x", "==", 99)], "", "x"),
        ([("x", "!=", None)], "ab", "x"),
        # An index knows no nulls: it is of no use where null may satisfy the clause.
        ([("x", "!=", 2)], "abc", ""),
        ([("x", "==", None)], "abc", ""),
        ([("y", "in", ["v", None])], "abc", ""),
        # ... but is where another clause on the column rejects null.
        ([("x", "!=", 2), ("x", "<", 5)], "a", "x"),
        ([("x", "in", [])], "", "x"),  # H23
        ([("p", "not in", {"a", "c"})], "b", ""),  # H05, H25
        ([("p", "is distinct from", "b")], "ac", ""),
        # What denies a list without null is true for null, what denies one with null is not.
        ([("x", "not in", [1, 2])], "abc", ""),  # H05
        ([("x", "not in", [1, 2, None])], "", "x"),
        ([("y", "not in", ["u", None])], "b", "y"),
        ([("x", "not in", [])], "abc", ""),
        ([("x", "is distinct from", None)], "ab", "x"),
        ([("x", "is distinct from", 2), ("x", "<", 5)], "a", "x"),
        ([("x", "in", range(2, 500))], "ab", "x"),
        ([("p", "in", frozenset({"c"}))], "c", ""),
    ],
)
def test_files_that_are_left(written, clauses, files, indices):
    assert plan(written, clauses) == (list(files), frozenset(indices))


def test_conjunctions_are_alternatives(written):
    assert plan(written, [("p", "==", "c")], [("x", "==", 1)]) == (["a", "c"], {"x"})
    assert plan(written) == (["a", "b", "c"], frozenset())


def test_plan_counts_all_files_and_keeps_order(written):
    _, snapshot = written
    found = plan_scan(snapshot, "table", ["x"], parse_predicates([[("p", ">", "a")]]), {})
    assert (len(found), found.total) == (2, 3)
    assert [t.key for t in found.tasks()] == [f"{UUID}/table/p={p}/f.parquet" for p in "bc"]


@pytest.mark.parametrize(
    ("op", "value", "rejects"),
    [
        ("==", 1, True),
        ("==", None, False),
        ("!=", 1, False),
        ("!=", None, True),
        ("<", 1, True),
        ("in", (1,), True),
        ("in", (1, None), False),
        ("in", (), True),
        ("not in", (1,), False),
        ("not in", (1, None), True),
        ("not in", (), False),
        ("is distinct from", 1, False),
        ("is distinct from", None, True),
    ],
)
def test_clauses_that_reject_null(op, value, rejects):
    clause = Clause("x", op, value)
    assert rejects_null(clause) == rejects
    assert rejects == (not matching_rows(pa.table({"x": pa.nulls(1, pa.int64())}), ((clause,),))[0])
    assert (indexed_clauses([clause], frozenset({"x"})) == {"x": [clause]}) == rejects
    assert indexed_clauses([clause], frozenset({"y"})) == {}


def test_unknown_columns_and_wrong_types_are_refused_with_their_dataset():
    schema = pa.schema([("x", pa.int64()), ("d", pa.date32())])
    for error in (UnknownColumn, KeyError, ValueError):
        with pytest.raises(error, match=r"'uuid' does not have: a, z\. It has \['x', 'd'\]\.$"):
            check_predicate_columns(parse_predicates([[("z", "==", 1)], [("a", "==", 1)]]), schema, UUID)
    for clause in (
        ("x", "==", "1"),
        ("x", "in", [1, "2.0"]),
        ("d", "<", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("x", "not in", ["12"]),
    ):
        with pytest.raises(InvalidType, match=r"'(x|d)' of dataset 'uuid'"):
            check_predicate_columns(parse_predicates([[clause]]), schema, UUID)
    check_predicate_columns(
        parse_predicates([[("x", "==", None), ("x", "in", [1, None]), ("d", "==", "2020-01-01")]]), schema, UUID
    )
    check_predicate_columns(None, schema, UUID)


def test_an_unknown_column_comes_with_the_name_that_is_close():
    schema = pa.schema([("COUNTRY_CODE", pa.string()), ("SALES_DATE", pa.date32())])
    with pytest.raises(UnknownColumn, match=r"Did you mean 'COUNTRY_CODE'\?"):
        check_predicate_columns(parse_predicates([[("COUNTRY", "==", "DE"), ("w", "==", 1)]]), schema, UUID)


values = st.sampled_from([0, 1, 2, 3])


@given(
    st.lists(st.tuples(values, values | st.none(), values | st.none()), min_size=1, max_size=10),
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["p", "x", "v1"]), st.sampled_from(OPERATORS), values), min_size=1, max_size=3
        ),
        min_size=1,
        max_size=2,
    ),
)
def test_pruned_or_not_the_same_rows_come(rows, raw):
    predicates = [
        [(c, op, [v, v + 1] if op in ("in", "not in") else v) for c, op, v in conjunction] for conjunction in raw
    ]
    store = MemoryStore()
    table = pa.table([pa.array(c, pa.int64()) for c in zip(*rows, strict=True)], names=["p", "x", "v1"])
    write(store, table, on=["p"], index=["x"], serializer={"chunk_size": 2})
    expected = table.filter(pa.array(matching_rows(table, parse_predicates(predicates))))
    found = read_table_arrow(UUID, store, columns=["p", "x", "v1"], predicates=predicates)
    assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)


ROOMS = ["scan.plan", "scan.execute", "write.stage", "write.plan"]


def test_scanning_and_writing_know_neither_pandas_nor_the_classes_of_kartothek():
    names = ", ".join(f"kartothek_cube.core.{name}" for name in ROOMS)
    command = [sys.executable, "-c", f"import sys, {names}; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "kartothek_cube.core.scan.plan" in loaded
    above = ("pandas", "kartothek_cube.core.kartothek", "kartothek_cube.core.dataset")
    assert [name for name in loaded if name.startswith(above)] == []
