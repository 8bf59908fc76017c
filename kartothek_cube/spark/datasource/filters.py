"""Translates Spark's filters to clauses of this library, where both mean the same. No I/O.

Four points differ. NaN is a value in Spark, equal to itself and greater than all others; here it
is null. A null satisfies only ``IS NULL`` in Spark, but also ``!=`` and ``not in`` here. Spark
has its own column types. And it hands on other dates than it was given, if they are old.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from kartothek_cube.core.expressions.literals import is_own_kind
from kartothek_cube.core.expressions.predicates import Clause, constants_of, is_null, parse_predicates
from kartothek_cube.errors import KartothekCubeError

__all__ = ["Pushed", "Translated", "comparable", "push", "translate"]

_COMPARISONS: dict[type[Filter], str] = {
    EqualTo: "==",
    EqualNullSafe: "==",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
# Constants come through Java's calendar, which has ten days less before 1582-10-15.
_FIRST_DAY = dt.date(1582, 10, 25)


@dataclass(frozen=True, slots=True)
class Translated:
    """A clause that keeps every row that a filter keeps; ``exact`` if it keeps no other row."""

    clause: Clause
    exact: bool


@dataclass(frozen=True, slots=True)
class Pushed:
    """The filters of a query: clauses for this library, and the filters left to Spark."""

    clauses: tuple[Clause, ...]
    rest: tuple[Filter, ...]


def push(filters: Iterable[Filter], types: Mapping[str, pa.DataType], *, cube: bool = False) -> Pushed:
    """Divide filters between this library and Spark.

    A filter with an inexact clause goes to both: the clause excludes files, Spark filters rows.

    Parameters
    ----------
    filters : iterable of Filter
        The filters that Spark offers.
    types : mapping of str to pyarrow.DataType
        The stored types of the columns.
    cube : bool
        The clauses become conditions of a cube, which have no null.
    """
    filters = list(filters)
    translated = [translate(f, types, cube=cube) for f in filters]
    clauses = dict.fromkeys(t.clause for t in translated if t is not None)
    rest = (f for f, t in zip(filters, translated, strict=True) if t is None or not t.exact)
    return Pushed(tuple(clauses), tuple(rest))


def translate(given: Filter, types: Mapping[str, pa.DataType], *, cube: bool = False) -> Translated | None:
    """A clause that keeps every row that the filter keeps; None if there is no such clause."""
    inner = given.child if isinstance(given, Not) else given
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    stored = types.get(path[0]) if len(path) == 1 else None
    if stored is None or not comparable(stored):
        return None
    data_type = _value_type(stored)
    to_clause = _negated if isinstance(given, Not) else _plain
    translated = to_clause(inner, path[0], data_type)
    if translated is None:
        return None
    clause = translated.clause
    if cube and any(map(is_null, constants_of(clause))):
        return None
    if any(type(value) is dt.date and value < _FIRST_DAY for value in constants_of(clause)):
        return None
    # A clause that the read would refuse, or compare in another way, is left to Spark.
    if not all(is_null(value) or is_own_kind(value, data_type) for value in constants_of(clause)):
        return None
    try:
        parse_predicates([[(clause.column, clause.op, clause.value)]])
    except KartothekCubeError:
        return None
    return translated


def _plain(given: Filter, column: str, data_type: pa.DataType) -> Translated | None:
    if isinstance(given, IsNull):
        # NaN is null here, but not in Spark.
        return Translated(Clause(column, "==", None), not pt.is_floating(data_type))
    if isinstance(given, IsNotNull):
        return None if pt.is_floating(data_type) else Translated(Clause(column, "!=", None), True)
    if isinstance(given, In):
        values = _values(given, data_type)
        return None if _has_nan(values) else Translated(Clause(column, "in", values), True)
    op = _COMPARISONS.get(type(given))
    # NaN is greater than all numbers in Spark.
    if op is None or is_null(given.value) or (op in (">", ">=") and pt.is_floating(data_type)):  # type: ignore[attr-defined]
        return None
    return Translated(Clause(column, op, _number(given.value, data_type)), True)  # type: ignore[attr-defined]


def _negated(given: Filter, column: str, data_type: pa.DataType) -> Translated | None:
    # Inexact: a null satisfies `!=` and `not in` here, but not in Spark.
    if isinstance(given, EqualTo) and not is_null(given.value):
        return Translated(Clause(column, "!=", _number(given.value, data_type)), False)
    if isinstance(given, In) and None not in given.value and not _has_nan(values := _values(given, data_type)):
        return Translated(Clause(column, "not in", values), False)
    return None


def _values(given: In, data_type: pa.DataType) -> tuple[Any, ...]:
    # A null in the list equals nothing.
    return tuple(_number(v, data_type) for v in given.value if v is not None)


def _has_nan(values: Iterable[Any]) -> bool:
    return any(map(is_null, values))


def _number(value: object, data_type: pa.DataType) -> Any:
    # Unsigned 64-bit integers are decimals in Spark.
    if isinstance(value, Decimal) and pt.is_integer(data_type) and value == value.to_integral_value():
        return int(value)
    return value


def _value_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pt.is_dictionary(data_type) else data_type


def comparable(data_type: pa.DataType) -> bool:
    """Whether values of a type reach Spark unchanged: not nanoseconds, zones or nested types."""
    data_type = _value_type(data_type)
    if pt.is_timestamp(data_type):
        return data_type.tz is None and data_type.unit != "ns"
    plain = (
        pt.is_boolean,
        pt.is_integer,
        pt.is_float32,
        pt.is_float64,
        pt.is_string,
        pt.is_large_string,
        pt.is_binary,
        pt.is_date32,
        pt.is_decimal128,
    )
    return any(applies(data_type) for applies in plain)
