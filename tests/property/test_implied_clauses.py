"""What follows from a filter holds for each row that the filter keeps."""

from __future__ import annotations

import operator
from functools import reduce

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kartothek_cube.core.expressions.filters import And, Filter, Not, Or, Unknown, implied_clauses
from kartothek_cube.core.expressions.literals import is_own_kind
from kartothek_cube.core.expressions.predicates import Clause, constants_of, matching_rows

NAN = float("nan")
SCHEMA = pa.schema([("i", pa.int64()), ("f", pa.float64()), ("g", pa.float32()), ("s", pa.string()), ("b", pa.bool_())])
VALUES = {
    "i": [-1, 0, 1, 2**53 + 1],
    "f": [-1.5, -0.0, 0.0, 2.0, float("inf"), NAN],
    "g": [-1.5, 0.5, 2.0, NAN],
    "s": ["", "a", "ab", "ä"],
    "b": [False, True],
}
# NaN is no constant of a filter.
CONSTANTS = {column: [v for v in values if v == v] for column, values in VALUES.items()}  # noqa: PLR0124
CONSTANTS = {**CONSTANTS, "f": [*CONSTANTS["f"], 0, 1, 2**53 + 1], "g": [*CONSTANTS["g"], 2, 0.1]}
COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Opaque(Unknown, frozen=True):
    """What only the engine understands: a truth value for each row."""

    truths: tuple[bool | None, ...] = ()


def truth(condition: Filter, row: dict[str, object], number: int) -> bool | None:
    """The truth value of a filter for a row: NaN is above every number, None is unknown."""
    match condition:
        case Opaque(truths=truths):
            return truths[number]
        case Not(operand):
            inner = truth(operand, row, number)
            return None if inner is None else not inner
        case And(operands) | Or(operands):
            values = [truth(operand, row, number) for operand in operands]
            decisive = isinstance(condition, Or)
            return decisive if decisive in values else None if None in values else not decisive
        case Clause(column, op, None):
            return (row[column] is None) == (op == "==")
        case Clause(column, "in" | "not in" as op, values):
            return None if row[column] is None else (_place(row[column]) in map(_place, values)) == (op == "in")
        case Clause(column, op, value):
            return None if row[column] is None else bool(COMPARE[op](_place(row[column]), _place(value)))
    raise AssertionError(condition)


def _place(value):
    is_number = isinstance(value, (int, float))
    return (value != value, 0 if value != value else value) if is_number else value  # noqa: PLR0124 - NaN


COLUMNS = st.sampled_from(SCHEMA.names)
ROWS = st.lists(
    st.fixed_dictionaries({c: st.sampled_from([*values, None]) for c, values in VALUES.items()}), min_size=1, max_size=8
)


def _comparison(column: str) -> st.SearchStrategy[Filter]:
    return st.builds(Clause, st.just(column), st.sampled_from(list(COMPARE)), st.sampled_from(CONSTANTS[column]))


def _membership(column: str) -> st.SearchStrategy[Filter]:
    constants = st.lists(st.sampled_from(CONSTANTS[column]), max_size=3).map(tuple)
    return st.builds(Clause, st.just(column), st.sampled_from(["in", "in", "not in"]), constants)


def _several(column: str) -> st.SearchStrategy[Filter]:
    """Filters on one column, which are united or intersected."""
    parts = st.lists(_comparison(column) | _comparison(column) | _membership(column), min_size=2, max_size=3).map(tuple)
    return parts.map(Or) | parts.map(And)


LEAVES = st.one_of(
    COLUMNS.flatmap(_comparison),
    COLUMNS.flatmap(_several),
    COLUMNS.flatmap(_several),
    COLUMNS.flatmap(_membership),
    st.builds(Clause, COLUMNS, st.sampled_from(["==", "!="]), st.none()),
    st.tuples(*[st.sampled_from([True, False, None])] * 8).map(Opaque),
)


def _joined(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(inner.map(Not), several.map(And), several.map(Or))


FILTERS = st.lists(st.recursive(LEAVES, _joined, max_leaves=8), min_size=1, max_size=3)


@settings(max_examples=10 * settings().max_examples)
@given(ROWS, FILTERS, st.sets(st.tuples(COLUMNS, st.sampled_from(["in", *COMPARE])), max_size=4))
@example(
    [{"i": 1, "f": None, "g": None, "s": None, "b": None}],
    [Or((Clause("i", "<", 1), Clause("i", "<=", 1)))],
    set(),
)
@example(
    [{"i": 1, "f": None, "g": None, "s": None, "b": None}],
    [Or((Clause("i", ">=", 1), Clause("i", ">", 1)))],
    set(),
)
def test_rows_that_filters_keep_satisfy_what_follows_and_where_it_is_exact_no_others(rows, filters, refused):
    table = pa.table({c: pa.array([r[c] for r in rows], SCHEMA.field(c).type, from_pandas=False) for c in SCHEMA.names})

    def accepts(clause):
        data_type = SCHEMA.field(clause.column).type
        is_own = all(v is None or is_own_kind(v, data_type) for v in constants_of(clause))
        return is_own and (clause.column, clause.op) not in refused

    rows = table.to_pylist()  # with the values of float32
    kept = [np.array([truth(f, row, i) is True for i, row in enumerate(rows)]) for f in filters]
    implied = implied_clauses(filters, SCHEMA, accepts)
    clauses = tuple(clause for i in implied for clause in i.clauses)
    assert all(map(accepts, clauses))
    satisfied = matching_rows(table, (clauses,))
    wanted = reduce(operator.and_, kept)
    assert satisfied[wanted].all()
    # An engine applies those that are not exact.
    applied = reduce(operator.and_, [k for k, i in zip(kept, implied, strict=True) if not i.exact], satisfied)
    assert applied.tolist() == wanted.tolist()
