"""The answer to predicates is what plain Python says row by row, and no stage of pruning changes
it.
"""

from __future__ import annotations

import datetime as dt
import operator
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.expressions.predicates import Bounds, matching_rows, parse_predicates, possible_chunks
from kartothek_cube.core.scan.plan import index_mask, indexed_clauses, needed_indices, partition_mask, plan_scan
from kartothek_cube.core.snapshots.loader import with_indices
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.commits import UUID, write

ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
OPS = ["==", "!=", "is distinct from", "in", "not in", *ORDERS]
NULLS = [None, float("nan"), pd.NaT, pd.NA, np.datetime64("NaT", "us")]
BERLIN = pa.timestamp("us", tz="Europe/Berlin")
NOON = dt.datetime(2024, 2, 29, 12)
DAYS = [dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2024, 3, 1)]
MOMENTS = [NOON - dt.timedelta(days=1), NOON, NOON + dt.timedelta(microseconds=1)]
UTC_MOMENTS = [moment.replace(tzinfo=dt.UTC) for moment in MOMENTS]


def moment_of(day):
    """A date is its midnight."""
    is_day = isinstance(day, dt.date) and not isinstance(day, dt.datetime)
    return dt.datetime.combine(day, dt.time()) if is_day else day


# Per type: the values, constants that are no values, and the ways to write a constant.
KINDS: dict[pa.DataType, tuple[list[Any], list[Any], list[Any]]] = {
    pa.int64(): (
        [-1, 0, 1, 2**53 + 1],
        [7, 2**53, 2**64, -(2**64), 2.0**53, 0.5, -1.0, float("-inf"), Decimal("0.1"), Decimal("1e99")],
        [int, Decimal, pa.scalar],
    ),
    pa.uint8(): ([0, 1, 255], [2, -0.5], [int, np.int64, np.uint16, float, np.float32, Decimal]),
    pa.float64(): (
        [-1.5, 0.0, 0.5, 2.0**53, float("inf")],
        [-0.0, 0.25, 0, 1, 2**53 + 1, -(2**53) - 1, 10**400, -(10**400), Decimal("0.25")],
        [float, np.float64, Decimal, pa.scalar],
    ),
    pa.bool_(): ([False, True], [], [bool, np.bool_]),
    pa.string(): (["a", "b", "ä/ "], ["", "aa"], [str, str.encode, np.str_, pa.scalar]),
    pa.binary(): ([b"a", b"b"], [b"", b"aa"], [bytes, bytes.decode]),
    pa.date32(): (
        DAYS,
        [dt.date(1, 1, 1), NOON, dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 2, 29, 0, 0, 0, 1)],
        [lambda day: day, dt.date.isoformat, pd.Timestamp, np.datetime64, moment_of],
    ),
    pa.timestamp("us"): (
        [*MOMENTS, dt.datetime(2024, 2, 29)],
        [dt.datetime(2024, 1, 1), dt.date(2024, 2, 29), dt.date(2024, 3, 1)],
        [lambda moment: moment, pd.Timestamp, np.datetime64, str, dt.datetime.isoformat, pa.scalar],
    ),
    BERLIN: (
        UTC_MOMENTS,
        [],
        [
            lambda moment: moment,
            lambda moment: moment.replace(tzinfo=None),
            lambda moment: pd.Timestamp(moment).tz_convert("Asia/Tokyo"),
            dt.datetime.isoformat,
        ],
    ),
    pa.decimal128(6, 2): (
        [Decimal("-0.50"), Decimal("1.00"), Decimal("9999.99")],
        [Decimal("0.999"), Decimal(10**9), Decimal(1), 1, -(10**9), -0.5, 0.25, float("inf")],
        [Decimal, pa.scalar],
    ),
}
PARTITIONABLE = [pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us")]
INDEXABLE = [kind for kind in KINDS if not pa.types.is_decimal(kind)]


@dataclass(frozen=True)
class Case:
    """Rows, and predicates twice: as they are asked and with constants as plain values (None for
    null).
    """

    table: pa.Table
    rows: list[dict[str, Any]]
    asked: list[list[tuple[str, str, Any]]]
    meant: list[list[tuple[str, str, Any]]]

    def matches(self, rows=None, meant=None):
        wanted = self.meant if meant is None else meant
        return [
            any(all(holds(row[c], op, v) for c, op, v in conjunction) for conjunction in wanted)
            for row in (self.rows if rows is None else rows)
        ]


def same(left, right):
    # Python compares numbers of all kinds exactly.
    return left is right if left is None or right is None else moment_of(left) == moment_of(right)


def holds(value, op, constant):
    if op in ("in", "not in"):
        return (op == "in") == any(same(value, one) for one in constant)
    if op in ORDERS:
        return value is not None and ORDERS[op](moment_of(value), moment_of(constant))
    return (op == "==") == same(value, constant)


@st.composite
def constants(draw, kind, null):
    values, others, spellings = KINDS[kind]
    if null and draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(NULLS)), None
    meant = draw(st.sampled_from(values + others))
    return draw(st.sampled_from(spellings))(meant) if meant in values else meant, meant


@st.composite
def clauses(draw, kinds):
    column, op = draw(st.sampled_from(sorted(kinds))), draw(st.sampled_from(OPS))
    if op not in ("in", "not in"):
        asked, meant = draw(constants(kinds[column], op not in ORDERS))
        return (column, op, asked), (column, op, meant)
    pairs = draw(st.lists(constants(kinds[column], True), max_size=4))
    return (column, op, [asked for asked, _ in pairs]), (column, op, [meant for _, meant in pairs])


@st.composite
def cases(draw):
    kinds = {
        name: draw(st.sampled_from(choice))
        for name, choice in (("p", PARTITIONABLE), ("i1", INDEXABLE), ("v1", list(KINDS)))
    }
    cells = {
        name: st.sampled_from(KINDS[kind][0]) | (st.nothing() if name == "p" else st.none())
        for name, kind in kinds.items()
    }
    rows = draw(st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=10))
    conjunctions = draw(st.lists(st.lists(clauses(kinds), min_size=1, max_size=3), min_size=1, max_size=2))
    columns = {
        name: pa.array([_cell(draw, row[name], kind) for row in rows], type=kind, from_pandas=False)
        for name, kind in kinds.items()
    }
    table = pa.table({**columns, "x": pa.array(range(len(rows)), pa.int64())})
    asked, meant = ([[pair[i] for pair in conjunction] for conjunction in conjunctions] for i in (0, 1))
    return Case(table, [row | {"x": x} for x, row in enumerate(rows)], asked, meant)


def _cell(draw, value, kind):
    return float("nan") if value is None and pa.types.is_floating(kind) and draw(st.booleans()) else value


@settings(max_examples=3 * settings().max_examples)
@given(cases())
def test_rows_match_as_said_row_by_row(case):
    assert matching_rows(case.table, parse_predicates(case.asked)).tolist() == case.matches()


def bounds_of(rows, column, kind):
    """The bounds of chunks of rows."""
    values = [[row[column] for row in chunk if row[column] is not None] for chunk in rows]
    low, high = (pa.array([side(v) if v else None for v in values], type=kind) for side in (min, max))
    return Bounds(low, high, np.array([len(v) < len(chunk) for v, chunk in zip(values, rows, strict=True)], dtype=bool))


@given(cases(), st.lists(st.integers(1, 3), min_size=10, max_size=10))
def test_bounds_exclude_no_chunk_with_a_matching_row(case, sizes):
    edges = np.minimum(np.cumsum([0, *sizes]), len(case.rows))
    chunks = [case.rows[a:b] for a, b in pairwise(edges) if a < b]
    bounds = {name: bounds_of(chunks, name, case.table.schema.field(name).type) for name in ("p", "i1", "v1")}
    possible = possible_chunks(bounds, len(chunks), parse_predicates(case.asked))
    for chunk, keep in zip(chunks, possible, strict=True):
        assert keep or not any(case.matches(chunk))


@given(cases())
def test_bounds_of_a_single_value_say_all_that_there_is_to_know(case):
    for asked, meant in zip(chain(*case.asked), chain(*case.meant), strict=True):
        column = asked[0]
        value = next((row[column] for row in case.rows if row[column] is not None), None)
        if value is not None:
            chunks = [[{column: value}], [{column: value}, {column: None}]]
            possible = possible_chunks(
                {column: bounds_of(chunks, column, case.table.schema.field(column).type)},
                2,
                parse_predicates([[asked]]),
            )
            assert possible.tolist() == [any(case.matches(chunk, [[meant]])) for chunk in chunks]


@given(cases())
def test_partition_values_and_indices_exclude_what_they_can_and_no_more(case):
    store = MemoryStore()
    snapshot = with_indices(store, write(store, case.table, on=["p"], index=["i1"]), ["i1"])
    files = [_rows_of(case, value) for value in snapshot.values.column("p").to_pylist()]
    for asked, meant in zip(case.asked, case.meant, strict=True):
        (conjunction,) = parse_predicates([asked])
        on_p = [clause for clause in meant if clause[0] == "p"]
        assert partition_mask(snapshot, conjunction).tolist() == [case.matches(rows, [on_p])[0] for rows in files]
        usable = indexed_clauses(conjunction, frozenset({"i1"}))
        if usable:
            on_i1 = [clause for clause in meant if clause[0] == "i1"]
            found = index_mask(snapshot.indices["i1"], usable["i1"], snapshot.partitions)
            assert found.tolist() == [any(case.matches(rows, [on_i1])) for rows in files]


def _rows_of(case, value):
    return [row for row in case.rows if row["p"] == value]


@given(
    cases(), st.sampled_from([[], ["p"]]), st.sampled_from([[], ["i1"]]), st.sampled_from([1, 2, None]), st.booleans()
)
def test_the_answer_does_not_depend_on_layout(case, on, index, chunk_size, twice):  # H06, H07
    store = MemoryStore()
    half = len(case.rows) // 2 if twice else 0
    for part in (case.table[:half], case.table[half:]):
        if part.num_rows:
            write(store, part, on=on, index=index, serializer={"chunk_size": chunk_size})
    found = read_table_arrow(UUID, store, columns=["x"], predicates=case.asked).column("x").to_pylist()
    assert sorted(found) == [x for x, match in enumerate(case.matches()) if match]


@given(cases())
def test_a_plan_keeps_every_file_with_a_matching_row(case):
    store = MemoryStore()
    snapshot = with_indices(store, write(store, case.table, on=["p"], index=["i1"]), ["i1"])
    predicates = parse_predicates(case.asked)
    plan = plan_scan(
        snapshot, "table", ["x"], predicates, {c: snapshot.indices[c] for c in needed_indices(snapshot, predicates)}
    )
    planned = [task.constants["p"] for task in plan.tasks()]
    wanted = {row["p"] for row, match in zip(case.rows, case.matches(), strict=True) if match}
    assert wanted <= set(planned)
    on_p = [[clause for clause in conjunction if clause[0] == "p"] for conjunction in case.meant]
    assert all(any(case.matches(_rows_of(case, value), on_p)) for value in planned)
