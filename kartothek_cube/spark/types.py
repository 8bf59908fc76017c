"""Arrow and Spark: types, the last step of a task, conditions.

In order:

- types; the last step of a task: columns by name, cast, in batches
- predicates as conditions of Spark, with the same truth for nulls and NaN
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as st

from kartothek_cube.core.expressions.literals import literal_array
from kartothek_cube.core.expressions.predicates import (
    COMPARE,
    Clause,
    Predicates,
    accepts_null,
    comparison_in_type,
    constants_of,
    denied,
    is_null,
)
from kartothek_cube.errors import InvalidInput, Unsupported

Timestamps: TypeAlias = Literal["refuse", "utc"]

# Spark cuts batches to 10,000 rows on its side in any case. Larger ones cost less on ours.
BATCH_ROWS = 65_536

_SAME: tuple[Callable[[pa.DataType], bool], ...] = (
    pt.is_boolean,
    pt.is_signed_integer,
    pt.is_float32,
    pt.is_float64,
    pt.is_string,
    pt.is_binary,
    pt.is_date32,
    pt.is_decimal128,
)
_CHANGED: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pt.is_uint8, pa.int16()),
    (pt.is_uint16, pa.int32()),
    (pt.is_uint32, pa.int64()),
    (pt.is_uint64, pa.decimal128(20, 0)),
    (pt.is_float16, pa.float32()),
    (pt.is_date64, pa.date32()),
    (pt.is_time, pa.time64("ns")),
    (pt.is_duration, pa.duration("us")),
    (pt.is_null, pa.string()),
    (pt.is_large_string, pa.string()),
    (pt.is_large_binary, pa.binary()),
    (pt.is_fixed_size_binary, pa.binary()),
)


def wire_schema(schema: pa.Schema, context: str) -> pa.Schema:
    """The Arrow types in which columns travel to Spark.

    Unsigned integers get the next wider type, timestamps microseconds. ``context`` names the
    dataset, cube or result in error messages.

    Raises
    ------
    Unsupported
        If Spark has no type for a column; the message names the column.
    """
    return pa.schema([pa.field(f.name, _named(_wire, f.type, f.name, context)) for f in schema])


def spark_schema(wire: pa.Schema) -> st.StructType:
    """The Spark columns of a schema from `wire_schema`, all nullable."""
    return st.StructType([st.StructField(f.name, _spark(f.type), nullable=True) for f in wire])


def as_struct(schema: st.StructType | pa.Schema) -> st.StructType:
    """The columns that a data source is handed: Spark has them in its types, Sail in Arrow's."""
    return spark_schema(wire_schema(schema, "the rows")) if isinstance(schema, pa.Schema) else schema


def arrow_schema(schema: st.StructType, context: str) -> pa.Schema:
    """The Arrow types in which Spark takes and returns columns of these types.

    Raises
    ------
    Unsupported
        For intervals of months, variants and others that Arrow lacks; the message names the column.
    """
    return pa.schema([pa.field(f.name, _named(_arrow, f.dataType, f.name, context)) for f in schema.fields])


def frame_schema(schema: st.StructType, dataset: str, timestamps: Timestamps = "refuse") -> pa.Schema:
    """The stored types of the columns of a Spark data frame, from its schema alone.

    Raises
    ------
    InvalidInput
        For names that occur twice, and for ``timestamp`` columns unless ``timestamps="utc"``, which
        stores their instants as UTC times without a zone.
    Unsupported
        For intervals, variants and other types that Parquet cannot store.
    """
    if timestamps not in ("refuse", "utc"):
        raise InvalidInput(f'timestamps={timestamps!r} is neither "refuse" nor "utc".')
    repeated = sorted({n for n in schema.names if schema.names.count(n) > 1})
    if repeated:
        raise InvalidInput(f'Duplicate columns found in dataset "{dataset}": {", ".join(repeated)}')
    zoned = [f.name for f in schema.fields if is_zoned(f.dataType)]
    if zoned and timestamps == "refuse":
        raise InvalidInput(
            f"Column {zoned[0]!r} of dataset {dataset!r} is a Spark timestamp, an instant whose text depends on the "
            f'session\'s time zone. Cast it: F.col("{zoned[0]}").cast("timestamp_ntz"), or to date; or say '
            f'timestamps="utc" to store UTC times. Columns concerned: {", ".join(zoned)}.'
        )
    context = f"dataset {dataset!r}"
    types = arrow_schema(schema, context)
    return pa.schema([pa.field(f.name, _named(_stored, f.type, f.name, context)) for f in types])


def is_zoned(data_type: st.DataType) -> bool:
    """Whether values are times with a zone, or have such inside."""
    if isinstance(data_type, st.ArrayType):
        return is_zoned(data_type.elementType)
    if isinstance(data_type, st.MapType):
        return is_zoned(data_type.keyType) or is_zoned(data_type.valueType)
    if isinstance(data_type, st.StructType):
        return any(is_zoned(f.dataType) for f in data_type.fields)
    return isinstance(data_type, st.TimestampType)


def _stored(data_type: pa.DataType) -> pa.DataType:
    """The stored type of a column that came from Spark."""
    if pt.is_timestamp(data_type):
        return pa.timestamp("us")
    if pt.is_time(data_type):
        return pa.time64("us")
    if pt.is_duration(data_type):  # for reads alone
        raise _not_stored(_PLAIN[data_type])
    return _nested(data_type, _stored) or data_type


def _named(convert: Callable[[Any], pa.DataType], data_type: object, column: str, context: str) -> pa.DataType:
    try:
        return convert(data_type)
    except Unsupported as error:
        raise Unsupported(f"Column {column!r} of {context}: {error}") from None


def _wire(data_type: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(data_type):
        return _wire(data_type.value_type)
    if pt.is_timestamp(data_type):
        return pa.timestamp("us", tz="UTC" if data_type.tz else None)
    if pt.is_decimal(data_type) and data_type.precision <= 38:
        return pa.decimal128(data_type.precision, data_type.scale)
    nested = _nested(data_type, _wire)
    if nested is not None:
        return nested
    if any(same(data_type) for same in _SAME):
        return data_type
    views = {"string_view": pa.string(), "binary_view": pa.binary()}
    changed = views.get(str(data_type)) or next((to for applies, to in _CHANGED if applies(data_type)), None)
    if changed is None:
        raise Unsupported(f"Spark has no type for {data_type}. Cast the column to a plain type first.")
    return changed


def _nested(data_type: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType | None:
    """A list, struct or map with converted elements; None for anything else."""
    if pt.is_list(data_type) or pt.is_large_list(data_type) or pt.is_fixed_size_list(data_type):
        return pa.list_(convert(data_type.value_type))
    if pt.is_map(data_type):
        return pa.map_(convert(data_type.key_type), convert(data_type.item_type))
    if pt.is_struct(data_type):
        return pa.struct([pa.field(f.name, convert(f.type)) for f in data_type])
    return None


_PLAIN: dict[pa.DataType, st.DataType] = {
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.string(): st.StringType(),
    pa.binary(): st.BinaryType(),
    pa.date32(): st.DateType(),
    pa.timestamp("us"): st.TimestampNTZType(),
    pa.timestamp("us", tz="UTC"): st.TimestampType(),
    pa.time64("ns"): st.TimeType(),
    pa.duration("us"): st.DayTimeIntervalType(),
    pa.null(): st.NullType(),
}
_ARROW: dict[type[st.DataType], pa.DataType] = {type(s): a for a, s in _PLAIN.items()}


def _spark(data_type: pa.DataType) -> st.DataType:
    if pt.is_decimal(data_type):
        return st.DecimalType(data_type.precision, data_type.scale)
    if pt.is_list(data_type):
        return st.ArrayType(_spark(data_type.value_type))
    if pt.is_map(data_type):
        return st.MapType(_spark(data_type.key_type), _spark(data_type.item_type))
    if pt.is_struct(data_type):
        return st.StructType([st.StructField(f.name, _spark(f.type)) for f in data_type])
    return _PLAIN[data_type]


def _arrow(data_type: st.DataType) -> pa.DataType:
    if isinstance(data_type, st.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, st.ArrayType):
        return pa.list_(_arrow(data_type.elementType))
    if isinstance(data_type, st.MapType):
        return pa.map_(_arrow(data_type.keyType), _arrow(data_type.valueType))
    if isinstance(data_type, st.StructType):
        return pa.struct([pa.field(f.name, _arrow(f.dataType)) for f in data_type.fields])
    if isinstance(data_type, (st.CharType, st.VarcharType)):
        return pa.string()
    if type(data_type) not in _ARROW:
        raise _not_stored(data_type)
    return _ARROW[type(data_type)]


def _not_stored(data_type: st.DataType) -> Unsupported:
    return Unsupported(
        f"the Spark type {data_type.simpleString()} cannot be stored. "
        "Cast it to a plain type, e.g. an interval to seconds, first."
    )


def conform(table: pa.Table, schema: pa.Schema, context: str) -> pa.Table:
    """The columns of a schema by name, in its order and types.

    Raises
    ------
    InvalidInput
        If a column is missing or cannot be cast; the message names the column.
    """
    missing = [n for n in schema.names if n not in table.column_names]
    if missing:
        raise InvalidInput(
            f"The rows of {context} have no column {missing[0]!r}; "
            f"they have {table.column_names}, and {schema.names} are needed."
        )
    return pa.table([_cast(table.column(f.name), f, context) for f in schema], schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field, context: str) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _gains_zone(column.type, field.type):
        raise InvalidInput(
            f"Column {field.name!r} of {context} has times without a zone, and a Spark timestamp is an instant. "
            "Declare it as timestamp_ntz, or give its times a zone."
        )
    try:
        coarse = _microseconds(column.type)
        # Spark has microseconds, so nanoseconds are cut, as in stored files. No other cast may lose
        # information.
        return (column if coarse.equals(column.type) else column.cast(coarse, safe=False)).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInput(
            f"Column {field.name!r} of {context} is {column.type} and does not become {field.type}: {error}"
        ) from None


def _gains_zone(given: pa.DataType, wanted: pa.DataType) -> bool:
    # Arrow would silently take times without a zone for UTC.
    if pt.is_timestamp(given) and pt.is_timestamp(wanted):
        return given.tz is None and wanted.tz is not None
    inner, needed = _inner(given), _inner(wanted)
    return any(_gains_zone(inner[name], needed[name]) for name in inner.keys() & needed.keys())


def _inner(data_type: pa.DataType) -> dict[str, pa.DataType]:
    """The types inside a list, struct or map, by name."""
    if pt.is_struct(data_type):
        return {f.name: f.type for f in data_type}
    if pt.is_map(data_type):
        return {"key": data_type.key_type, "value": data_type.item_type}
    is_list = pt.is_list(data_type) or pt.is_large_list(data_type) or pt.is_fixed_size_list(data_type)
    return {"value": data_type.value_type} if is_list else {}


def _microseconds(data_type: pa.DataType) -> pa.DataType:
    """The same type with microseconds instead of nanoseconds, also in nested types."""
    if pt.is_timestamp(data_type) and data_type.unit == "ns":
        return pa.timestamp("us", tz=data_type.tz)
    return (pt.is_nested(data_type) and _nested(data_type, _microseconds)) or data_type


def to_spark(table: pa.Table, schema: pa.Schema, context: str = "the result") -> Iterator[pa.RecordBatch]:
    """Record batches with the columns of a schema, in its order and types."""
    # Spark binds columns by position and casts nothing: columns of one type would be swapped
    # silently.
    if table.num_rows:
        typed = conform(table, schema, context)
        # Each chunk becomes a batch of its own, however small.
        if max(c.num_chunks for c in typed.columns) > 1 + typed.num_rows // BATCH_ROWS:
            typed = typed.combine_chunks()
        yield from typed.to_batches(max_chunksize=BATCH_ROWS)


# --- predicates as conditions of Spark ------------------------------------------------------------


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
    placed = comparison_in_type(clause, data_type)
    if isinstance(placed, bool):
        return ~missing if placed else F.lit(False)
    op, bound = placed
    if is_floating:
        return _compared(column, op, bound)
    subject, [value] = _operands(column, [bound])
    return _compare(op, subject, value)


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


def _compare(op: str, left: Column, right: Column) -> Column:
    compared: Column = COMPARE[op](left, right)
    return compared


def _compared(column: Column, op: str, value: pa.Scalar) -> Column:
    """A comparison of floats."""
    if value.as_py() == 0.0:
        # Parquet's statistics and dictionaries tell -0.0 from 0.0, where -0.0 comes first.
        low, high = F.lit(-0.0), F.lit(0.0)
        if op == "==":
            return (column >= low) & (column <= high)
        return _compare(op, column, low if op in (">", ">=") else high) & ~F.isnan(column)
    # NaN is the greatest number for Spark.
    found = _compare(op, column, constant(value))
    return found & ~F.isnan(column) if op in (">", ">=") else found
