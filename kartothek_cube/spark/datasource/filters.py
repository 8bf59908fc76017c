"""Spark's filters as comparisons of this library, where both mean the same. Pure.

What Spark compares and what we compare differs in three points: for Spark NaN is a value, equal to itself and greater than all others, for us it is null;
a null satisfies no filter of Spark but ``IS NULL``, while it satisfies our ``!=`` and ``not in``; and Spark has its own types of columns.
"""

from __future__ import annotations

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

from kartothek_cube.core.predicates import Clause, constants_of, is_null, parse_predicates
from kartothek_cube.core.schema import check_literal
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


@dataclass(frozen=True, slots=True)
class Translated:
    """A comparison that leaves every row that a filter leaves; ``exact`` if it leaves no other row."""

    clause: Clause
    exact: bool


@dataclass(frozen=True, slots=True)
class Pushed:
    """What becomes of the filters of a query: the comparisons that we make, and the filters that Spark still has to apply."""

    clauses: tuple[Clause, ...]
    rest: tuple[Filter, ...]


def push(filters: Iterable[Filter], kinds: Mapping[str, pa.DataType], *, cube: bool = False) -> Pushed:
    """Divide the work between us and Spark. What cannot be said exactly is used to leave files out, and given back.

    ``kinds`` has the stored types of the columns, ``cube`` says that the comparisons become conditions of a cube, which know no null and no decimals.
    """
    filters = list(filters)
    found = [translate(f, kinds, cube=cube) for f in filters]
    clauses = dict.fromkeys(t.clause for t in found if t is not None)
    return Pushed(tuple(clauses), tuple(f for f, t in zip(filters, found, strict=True) if t is None or not t.exact))


def translate(given: Filter, kinds: Mapping[str, pa.DataType], *, cube: bool = False) -> Translated | None:
    """One filter as a comparison that no row fails which satisfies the filter; None if there is none."""
    negated = isinstance(given, Not)
    inner = given.child if isinstance(given, Not) else given
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    kind = kinds.get(path[0]) if len(path) == 1 else None
    if kind is None or not comparable(kind):
        return None
    found = _negated(inner, path[0], _value_type(kind)) if negated else _plain(inner, path[0], _value_type(kind))
    return found if found is not None and _is_valid(found.clause, _value_type(kind), cube) else None


def _plain(given: Filter, column: str, kind: pa.DataType) -> Translated | None:
    if isinstance(given, IsNull):
        # NaN is null for us, not for Spark.
        return Translated(Clause(column, "==", None), not pt.is_floating(kind))
    if isinstance(given, IsNotNull):
        return None if pt.is_floating(kind) else Translated(Clause(column, "!=", None), True)
    if isinstance(given, In):
        values = _values(given, kind)
        return None if _has_nan(values) else Translated(Clause(column, "in", values), True)
    op = _COMPARISONS.get(type(given))
    # NaN is greater than all numbers for Spark.
    if op is None or is_null(given.value) or (op in (">", ">=") and pt.is_floating(kind)):  # type: ignore[attr-defined]
        return None
    return Translated(Clause(column, op, _number(given.value, kind)), True)  # type: ignore[attr-defined]


def _negated(given: Filter, column: str, kind: pa.DataType) -> Translated | None:
    """``!=`` and ``not in``: a null satisfies ours and not Spark's."""
    if isinstance(given, EqualTo) and not is_null(given.value):
        return Translated(Clause(column, "!=", _number(given.value, kind)), False)
    if isinstance(given, In) and None not in given.value and not _has_nan(values := _values(given, kind)):
        return Translated(Clause(column, "not in", values), False)
    return None


def _values(given: In, kind: pa.DataType) -> tuple[Any, ...]:
    """The values of a list; a null among them is equal to nothing."""
    return tuple(_number(v, kind) for v in given.value if v is not None)


def _has_nan(values: Iterable[Any]) -> bool:
    return any(map(is_null, values))


def _number(value: object, kind: pa.DataType) -> Any:
    """Unsigned integers of 64 bits are decimals for Spark."""
    return int(value) if isinstance(value, Decimal) and pt.is_integer(kind) and value == value.to_integral_value() else value


def _is_valid(clause: Clause, kind: pa.DataType, cube: bool) -> bool:
    if cube and any(map(is_null, constants_of(clause))):
        return False
    try:
        for value in constants_of(clause):
            if not is_null(value):
                check_literal(value, kind, clause.column, strict=cube)
        parse_predicates([[(clause.column, clause.op, clause.value)]])
    except KartothekCubeError:
        return False
    return True


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind


def comparable(kind: pa.DataType) -> bool:
    """Whether a value of this type equals what Spark gets for it: not for times that are cut to microseconds, nor for zones and nested types."""
    kind = _value_type(kind)
    if pt.is_timestamp(kind):
        return kind.tz is None and kind.unit != "ns"
    plain = (pt.is_boolean, pt.is_integer, pt.is_float32, pt.is_float64, pt.is_string, pt.is_large_string, pt.is_binary, pt.is_date32, pt.is_decimal128)
    return any(applies(kind) for applies in plain)
