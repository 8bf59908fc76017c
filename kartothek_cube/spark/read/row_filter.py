"""Predicates as conditions of Spark, with the same truth for nulls and NaN. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql import Column
from pyspark.sql import functions as F

from kartothek_cube.core.expressions.literals import literal, literal_array
from kartothek_cube.core.expressions.predicates import (
    Clause,
    Predicates,
    accepts_null,
    constants_of,
    denied,
    is_null,
)
from kartothek_cube.spark.types import spark_schema, wire_schema

__all__ = ["constant", "quoted", "row_filter"]

_COMPARE: Mapping[str, Callable[[Column, Column], Column]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# The days that Java's calendar leaves out, and in some zone those around them: 1582-10-04 to 15.
# Spark would look for other days in files, but not for other numbers.
_GAP = range(-141_438, -141_426)
_MICROSECONDS = 86_400 * 10**6  # of a day


def quoted(name: str) -> str:
    """A column's name in Spark's expressions, where a dot would lead into a struct.

    Examples
    --------
    >>> quoted("SALES.NET")
    '`SALES.NET`'
    """
    return "`" + name.replace("`", "``") + "`"


def constant(scalar: pa.Scalar) -> Column:
    """An Arrow scalar as a literal of Spark's type for it."""
    wire = wire_schema(pa.schema([("", scalar.type)]), "a constant")
    [field] = spark_schema(wire).fields
    scalar = scalar.cast(wire.field(0).type)
    # Numbers, since Java reads dates in another calendar, and datetimes in the session's time zone.
    # Some moments are beyond Python's years.
    if scalar.is_valid and pt.is_date(scalar.type):
        return F.date_from_unix_date(F.lit(scalar.value))
    if scalar.is_valid and pt.is_timestamp(scalar.type):
        if scalar.type.tz:
            return F.timestamp_micros(F.lit(scalar.value))
        return F.expr(f"timestampadd(MICROSECOND, {scalar.value}L, TIMESTAMP_NTZ'1970-01-01')")
    return F.lit(scalar.as_py()).cast(field.dataType)


def row_filter(predicates: Predicates, schema: pa.Schema) -> Column:
    """The rows that satisfy the predicates; null is as good as false.

    ``schema`` has the types of the dataset.
    """
    conjunctions: Sequence[Column] = [
        reduce(operator.and_, [_matches(clause, schema.field(clause.column).type) for clause in conjunction])
        for conjunction in predicates
    ]
    return reduce(operator.or_, conjunctions)


def _matches(clause: Clause, data_type: pa.DataType) -> Column:
    if pt.is_timestamp(data_type):  # Spark has no nanoseconds
        data_type = pa.timestamp("us", data_type.tz)
    column, is_floating = F.col(quoted(clause.column)), pt.is_floating(data_type)
    opposite = denied(clause)
    if opposite is not None:
        return ~F.coalesce(_matches(opposite, data_type), F.lit(False))
    missing = column.isNull() | F.isnan(column) if is_floating else column.isNull()
    if clause.op == "in":
        values, found = literal_array([v for v in constants_of(clause) if not is_null(v)], data_type), F.lit(False)
        if is_floating and pc.any(pc.equal(values, 0.0)).as_py():
            # Spark and Parquet tell -0.0 from 0.0 in sets.
            values, found = values.filter(pc.not_equal(values, 0.0)), _compared(column, "==", pa.scalar(0.0))
        if len(values):
            subject, constants = _operands(column, values)
            found = found | subject.isin(constants)
        return found | missing if accepts_null(clause) else found
    if is_null(clause.value):
        return missing
    if pt.is_null(data_type):
        return F.lit(False)
    place = literal(clause.value, data_type)
    if place.floor is None:
        return ~missing if clause.op in (">", ">=") else F.lit(False)
    if not place.exact and clause.op == "==":
        return F.lit(False)
    # As in `core.expressions.evaluate`: the greatest value below the constant stands in.
    op = clause.op if place.exact else "<=" if clause.op in ("<", "<=") else ">"
    if is_floating:
        return _compared(column, op, place.floor)
    subject, [value] = _operands(column, [place.floor])
    return _COMPARE[op](subject, value)


def _operands(column: Column, values: Iterable[pa.Scalar]) -> tuple[Column, list[Column]]:
    """A column and the constants to compare it with."""
    values = list(values)
    if pt.is_date(values[0].type):
        days = [value.cast(pa.date32()).value for value in values]
        if any(day in _GAP for day in days):
            return F.unix_date(column), [F.lit(day) for day in days]
    if pt.is_timestamp(values[0].type) and values[0].type.tz:
        moments = [value.cast(pa.timestamp("us", "UTC")).value for value in values]
        if any(moment // _MICROSECONDS in _GAP for moment in moments):
            return F.unix_micros(column), [F.lit(moment) for moment in moments]
    return column, [constant(value) for value in values]


def _compared(column: Column, op: str, value: pa.Scalar) -> Column:
    """A comparison of floats."""
    if value.as_py() == 0.0:
        # Parquet's statistics and dictionaries tell -0.0 from 0.0, where -0.0 comes first.
        low, high = F.lit(-0.0), F.lit(0.0)
        if op == "==":
            return (column >= low) & (column <= high)
        return _COMPARE[op](column, low if op in (">", ">=") else high) & ~F.isnan(column)
    # NaN is the greatest number for Spark.
    found = _COMPARE[op](column, constant(value))
    return found & ~F.isnan(column) if op in (">", ">=") else found
