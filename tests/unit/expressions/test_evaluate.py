from __future__ import annotations

import datetime as dt
import math
import operator
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kartothek_cube.core.arrow.types import normal_type
from kartothek_cube.core.expressions import predicates as evaluate
from kartothek_cube.core.expressions.literals import literal_array
from kartothek_cube.core.expressions.predicates import (
    OPERATORS,
    Bounds,
    Clause,
    clause_on_scalar,
    is_null,
    matching_rows,
    matching_values,
    parse_predicates,
    possible_chunks,
)
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.document import PartitionColumns
from kartothek_cube.core.metadata.index import build_index
from kartothek_cube.core.scan.plan import index_mask, indexed_clauses
from kartothek_cube.core.stores.local import MemoryStore

COMPARE = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
DAY = dt.datetime(2020, 2, 29)

# Per type: values of a column, and constants that need not be among them.
POOLS = {
    pa.int8(): ([-128, -1, 0, 1, 127], [-1000, 2**63, -(2**63) - 1, 2, 1.0, -0.5, 127.5, float("inf"), Decimal("0.5")]),
    pa.int64(): (
        [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1],
        [2**53, 2**64, -(2**70), 2.0**53, 2.0**63, -(2.0**63), Decimal("0.1")],
    ),
    pa.uint8(): ([0, 1, 255], [-1, 256, 2**64]),
    pa.uint64(): ([0, 1, 2**63, 2**64 - 1], [-1, 2**64]),
    pa.float32(): (
        [-1.5, -0.0, 0.0, 1e30, float("inf"), float("nan")],
        [0.1, -float("inf"), 0, 10**30, 10**400, Decimal("-1.5")],
    ),
    pa.float64(): (
        [-1.5, -0.0, 0.0, 0.1, 2.0**53, float("inf"), float("nan")],
        [0.2, -float("inf"), 2**53 + 1, -(10**400)],
    ),
    pa.bool_(): ([False, True], []),
    pa.string(): (["", "a", "ä", "b\0", "😀"], ["aa", "￿"]),
    pa.binary(): ([b"", b"a", b"\xff"], [b"aa"]),
    pa.date32(): ([dt.date(1, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31)], [dt.date(2020, 3, 1)]),
    pa.timestamp("us"): (
        [dt.datetime(1, 1, 1), DAY, DAY + dt.timedelta(microseconds=1), dt.datetime(9999, 12, 31)],
        [
            pd.Timestamp(DAY) + pd.Timedelta(1, "ns"),
            pd.Timestamp(DAY) - pd.Timedelta(1, "ns"),
            np.datetime64("1600-01-01", "D"),
        ],
    ),
    pa.decimal128(5, 2): (
        [Decimal("-999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("1.50"), Decimal("999.99")],
        [
            Decimal("0.001"),
            Decimal("-0.001"),
            Decimal("1.5"),
            Decimal("1e30"),
            Decimal(-1000),
            Decimal("1e-300"),
            Decimal("Infinity"),
            1,
            -(10**40),
            1.5,
            float("-inf"),
        ],
    ),
}


def truth(value, clause):
    """The truth table in plain Python."""
    null = is_null(value)
    if clause.op in ("in", "not in"):
        return (clause.op == "in") == any(truth(value, Clause(clause.column, "==", v)) for v in clause.value)
    if is_null(clause.value):
        return null == (clause.op == "==")
    if clause.op in ("!=", "is distinct from"):
        return null or not equal_or_ordered("==", value, clause.value)
    return not null and equal_or_ordered(clause.op, value, clause.value)


def equal_or_ordered(op, value, constant):
    if isinstance(constant, np.datetime64):
        constant = constant.astype("datetime64[us]").item()
    if isinstance(value, dt.datetime):
        return COMPARE[op](exact(value), exact(constant))
    return COMPARE[op](value, constant)


def exact(moment):
    """Nanoseconds, in integers of any size."""
    nanos = getattr(moment, "nanosecond", 0)
    plain = dt.datetime(*moment.timetuple()[:6], moment.microsecond)
    return (plain - dt.datetime(1, 1, 1)) // dt.timedelta(microseconds=1) * 1000 + nanos


@st.composite
def clauses(draw, kind):
    values, others = POOLS[kind]
    constants = st.sampled_from([*values, *others]).filter(lambda v: not is_null(v))
    op = draw(st.sampled_from(OPERATORS))
    if op in ("in", "not in"):
        return Clause("x", op, tuple(draw(st.lists(constants | st.none(), max_size=4))))
    return Clause("x", op, draw(constants | st.none() if op in ("==", "!=", "is distinct from") else constants))


@st.composite
def columns_and_predicates(draw):
    kind = draw(st.sampled_from(list(POOLS)))
    values = draw(st.lists(st.none() | st.sampled_from(POOLS[kind][0]), max_size=12))
    if kind == pa.float32():
        values = [None if v is None else float(np.float32(v)) for v in values]
    conjunctions = st.lists(clauses(kind), min_size=1, max_size=2).map(tuple)
    return kind, values, tuple(draw(st.lists(conjunctions, min_size=1, max_size=2)))


def expected(values, predicates):
    return [any(all(truth(v, clause) for clause in conjunction) for conjunction in predicates) for v in values]


@given(columns_and_predicates())
def test_rows_match_as_plain_python_says(case):
    kind, values, predicates = case
    table = pa.table({"x": pa.array(values, type=kind, from_pandas=False)})
    assert matching_rows(table, predicates).tolist() == expected(values, predicates)


@given(columns_and_predicates())
def test_dictionaries_and_constants_match_as_their_values(case):
    kind, values, predicates = case
    column = pa.array(values, type=kind, from_pandas=False)
    for conjunction in predicates:
        for clause in conjunction:
            rows = matching_values(column, clause).tolist()
            assert matching_values(column.dictionary_encode(), clause).tolist() == rows
            assert [clause_on_scalar(scalar, clause) for scalar in column] == rows


@given(columns_and_predicates(), st.integers(1, 4))
@example((pa.float64(), [1.0, float("nan")], ((Clause("x", "!=", 1.0),),)), 2)
@example((pa.float64(), [1.0, float("nan")], ((Clause("x", "==", None),),)), 2)
def test_a_pruned_row_group_holds_no_matching_row(case, group_size):
    kind, values, predicates = case
    store = MemoryStore()
    column = pa.array(values, type=kind, from_pandas=False)
    table = pa.table({"x": column, "n": range(len(values))})
    store.put("uuid/table/f.parquet", ParquetFormat(chunk_size=group_size).encode(table))
    request = FileRequest("uuid", pa.schema([("x", normal_type(kind)), ("n", pa.int64())]), ("n",), predicates)
    rows = [i for i, match in enumerate(expected(values, predicates)) if match]
    assert read_rows(store, "uuid/table/f.parquet", request).column("n").to_pylist() == rows


@given(columns_and_predicates(), st.integers(1, 4))
def test_an_excluded_chunk_holds_no_matching_row(case, size):
    kind, values, predicates = case
    chunks = [values[i : i + size] for i in range(0, len(values), size)]
    present = [[v for v in chunk if not is_null(v)] for chunk in chunks]
    low, high = (pa.array([f(p) if p else None for p in present], type=kind) for f in (min, max))
    bounds = {
        "x": Bounds(low, high, np.array([len(p) < len(c) for p, c in zip(present, chunks, strict=True)], dtype=bool))
    }
    possible = possible_chunks(bounds, len(chunks), predicates)
    for chunk, keep in zip(chunks, possible, strict=True):
        assert keep or not any(expected(chunk, predicates))


@given(columns_and_predicates())
def test_an_index_excludes_no_file_with_a_matching_row(case):
    kind, values, predicates = case
    kind = normal_type(kind)
    files = [values[i : i + 3] for i in range(0, len(values), 3)]
    names = [f"f{i}" for i in range(len(files))]
    entries = [
        (pa.array([v for v in dict.fromkeys(f) if not is_null(v)], type=kind), name)
        for f, name in zip(files, names, strict=True)
    ]
    index = build_index("x", kind, entries)
    partitions = PartitionColumns(pa.array(names, type=pa.string()), {})
    for conjunction in predicates:
        usable = indexed_clauses(conjunction, frozenset({"x"}))
        for rows, keep in zip(
            files, index_mask(index, usable.get("x", []), partitions) if usable else [], strict=False
        ):
            matches = any(expected(rows, (conjunction,)))
            assert keep == matches if len(conjunction) == 1 else keep or not matches


def test_no_predicates_match_everything_and_no_conjunction_nothing():
    table = pa.table({"x": [1, 2]})
    assert matching_rows(table, None).tolist() == [True, True]
    assert matching_rows(table, ()).tolist() == [False, False]
    assert possible_chunks({}, 2, None).tolist() == [True, True]
    assert possible_chunks({}, 2, ()).tolist() == [False, False]
    assert possible_chunks({}, 2, ((Clause("x", "==", 1),),)).tolist() == [True, True]


@pytest.mark.parametrize(
    ("op", "value", "match"),
    [
        *(
            ("==", 1, False),
            ("!=", 1, True),
            ("<", "a", False),
            ("in", (1, None), True),
            ("in", (1,), False),
            ("==", None, True),
            ("!=", None, False),
        ),
        *(
            ("not in", (1,), True),
            ("not in", (1, None), False),
            ("not in", (), True),
            ("is distinct from", 1, True),
            ("is distinct from", None, False),
        ),
    ],
)
def test_a_column_without_a_type_is_null_throughout(op, value, match):  # H30
    assert matching_values(pa.nulls(2), Clause("x", op, value)).tolist() == [match, match]


@pytest.mark.parametrize(
    ("op", "matches"),
    [
        ("==", [0, 0]),
        ("!=", [1, 1]),
        ("<", [1, 0]),
        ("<=", [1, 0]),
        (">", [0, 1]),
        (">=", [0, 1]),
        ("in", [0, 0]),
        ("not in", [1, 1]),
    ],
)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_moment_between_two_microseconds(op, matches, zone):
    literal = pd.Timestamp(DAY, tz="UTC" if zone else None) + pd.Timedelta(1, "ns")
    column = pa.array([DAY, dt.datetime(9999, 12, 31)], type=pa.timestamp("us", tz=zone))
    clause = Clause("x", op, (literal,) if op.endswith("in") else literal)
    assert matching_values(column, clause).tolist() == [bool(m) for m in matches]


def test_negative_zero_is_zero():
    column = pa.array([-0.0, 0.0, 1.0])
    for clause in (
        Clause("x", "in", (0.0,)),
        Clause("x", "in", (-0.0, None)),
        Clause("x", "==", 0.0),
        Clause("x", "==", -0.0),
    ):
        assert matching_values(column, clause).tolist() == [True, True, False]


def test_bounds_of_careless_writers_exclude_nothing():  # H33
    bounds = {"x": Bounds(pa.array([5.0, math.nan, None]), pa.array([1.0, math.nan, 3.0]), np.zeros(3, dtype=bool))}
    assert possible_chunks(bounds, 3, ((Clause("x", "==", 100.0),),)).tolist() == [True, True, True]
    bounds = {"x": Bounds(pa.array([5, 5]), pa.array([1, 9]), np.zeros(2, dtype=bool))}
    assert possible_chunks(bounds, 2, ((Clause("x", "==", 100),),)).tolist() == [True, False]


@pytest.mark.parametrize(
    ("op", "value", "possible"),
    [("==", 1.0, True), ("==", 1 + 2**-52, False), (">", 1 - 2**-53, True), (">", 1.0, False), ("<", 1.0, False)],
)
def test_bounds_of_floats_are_compared_exactly(op, value, possible):  # H32
    bounds = {"x": Bounds(pa.array([1.0]), pa.array([1.0]), np.zeros(1, dtype=bool))}
    assert possible_chunks(bounds, 1, ((Clause("x", op, value),),)).tolist() == [possible]


@pytest.mark.parametrize("n", [3, 256, 257, 5000])
def test_a_list_of_any_length_excludes_what_holds_none_of_it(n):
    bounds = {
        "x": Bounds(pa.array([1, 10, 11, None, 2 * n + 8]), pa.array([9, 10, 11, None, 2**40]), np.zeros(5, dtype=bool))
    }
    wanted = tuple(range(2 * n + 8, 9, -2))
    assert possible_chunks(bounds, 5, ((Clause("x", "in", wanted),),)).tolist() == [False, True, False, True, True]
    assert possible_chunks(bounds, 5, ((Clause("x", "not in", wanted),),)).tolist() == [True, False, True, True, True]


@pytest.mark.parametrize(
    ("op", "value", "without_null", "with_null"),
    [
        ("==", 1, True, True),
        ("==", 2, False, False),
        ("==", None, False, True),
        ("!=", 1, False, True),  # H21
        ("!=", 2, True, True),
        ("!=", None, True, True),
        ("is distinct from", 1, False, True),
        ("<", 1, False, False),
        ("<=", 1, True, True),
        ("in", (2, 3), False, False),
        ("in", (2, None), False, True),
        ("in", (), False, False),
        ("not in", (1, 2), False, True),
        ("not in", (1, None), False, False),
        ("not in", (2, None), True, True),
        ("not in", (), True, True),
    ],
)
def test_what_the_bounds_of_a_chunk_of_ones_allow(op, value, without_null, with_null):
    bounds = {"x": Bounds(pa.array([1, 1]), pa.array([1, 1]), np.array([False, True]))}
    assert possible_chunks(bounds, 2, ((Clause("x", op, value),),)).tolist() == [without_null, with_null]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_constant_of_nanoseconds_meets_columns_of_every_unit(unit):
    column = pa.array([0, 1], pa.timestamp(unit))
    for op, rows in {"<": [1, 0], "<=": [1, 0], ">": [0, 1], "==": [0, 0], "!=": [1, 1]}.items():
        constant = np.datetime64(500, "ps") if unit == "ns" else pd.Timestamp(1)
        assert matching_values(column, Clause("x", op, constant)).tolist() == [bool(row) for row in rows]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int8(), pa.large_string()), pa.string()])
def test_wide_and_encoded_text_is_compared_by_its_values(kind):  # H13
    column = pa.chunked_array([pa.array(["a", None]), pa.array(["b"])]).cast(kind)
    assert matching_values(column, Clause("x", "not in", ("a", b"z"))).tolist() == [False, True, True]
    assert matching_values(column, Clause("x", "<", b"b")).tolist() == [True, False, False]


@pytest.mark.parametrize("as_integers", [False, True])
def test_statistics_of_decimals_exclude_no_match_however_they_are_stored(as_integers):
    store, sink = MemoryStore(), pa.BufferOutputStream()
    column = pa.array([Decimal("0.50"), Decimal("1.50"), None, Decimal("2.50")], pa.decimal128(5, 2))
    pq.write_table(pa.table({"x": column, "n": range(4)}), sink, row_group_size=2, store_decimal_as_integer=as_integers)
    store.put("uuid/table/f.parquet", sink.getvalue())
    schema = pa.schema([("x", column.type), ("n", pa.int64())])
    for op, value, rows in [
        ("==", Decimal("2.5"), [3]),
        ("<", Decimal("1.501"), [0, 1]),
        ("not in", (Decimal("2.5"),), [0, 1, 2]),
    ]:
        request = FileRequest("uuid", schema, ("n",), ((Clause("x", op, value),),))
        assert read_rows(store, "uuid/table/f.parquet", request).column("n").to_pylist() == rows


@pytest.mark.parametrize("op", ["in", "not in"])
def test_a_list_of_constants_becomes_an_array_once_for_all_files(monkeypatch, op):
    made = []
    monkeypatch.setattr(
        evaluate, "literal_array", lambda values, kind: made.append(kind) or literal_array(values, kind)
    )
    store = MemoryStore()
    store.put("uuid/table/f.parquet", ParquetFormat().encode(pa.table({"x": [1, 2, 3]})))
    request = FileRequest("uuid", pa.schema([("x", pa.int64())]), ("x",), parse_predicates([[("x", op, [3, 1, 7])]]))
    for _ in range(3):
        assert read_rows(store, "uuid/table/f.parquet", request)["x"].to_pylist() == ([1, 3] if op == "in" else [2])
    assert made == [pa.int64()]


@pytest.mark.parametrize("data_type", [pa.int64(), pa.int8(), pa.date32(), pa.timestamp("us"), pa.float64()])
@given(
    st.lists(st.none() | st.integers(-9, 9), max_size=30),
    st.lists(st.none() | st.integers(-12, 12), max_size=6),
    st.booleans(),
    st.integers(0, 30),
)
def test_constants_are_searched_in_sorted_values_as_in_others(data_type, numbers, sought, is_sorted, cut):
    """Only many values are looked at for that."""
    numbers = sorted(numbers, key=lambda n: (n is None, n)) if is_sorted and None not in numbers else numbers
    integers = pa.int32() if pa.types.is_date32(data_type) else pa.int64()
    values = pa.array(numbers, integers).cast(data_type)
    column = pa.chunked_array([values.slice(0, cut), values.slice(cut)])
    clause = Clause("x", "in", tuple(pa.array(sought, integers).cast(data_type).to_pylist()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "_SEARCHED", 0)
        found = matching_values(column, clause).tolist()
    assert found == [n in sought for n in numbers]
