"""Types on their way between Arrow and Spark, and the one last step of every task: columns by name, cast, in large batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import types as st

from kartothek_cube.errors import InvalidInput, Unsupported

__all__ = ["Timestamps", "arrow_schema", "conform", "frame_schema", "spark_schema", "to_spark", "wire_schema"]

Timestamps: TypeAlias = Literal["refuse", "utc"]

# Spark cuts batches to 10,000 rows on its side whatever it gets; larger ones only cost less on ours.
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


def wire_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """The Arrow types in which columns travel to Spark: unsigned integers in the next wider type, times in microseconds.

    Raises
    ------
    Unsupported
        Naming the column, if Spark has no type for it.
    """
    return pa.schema([pa.field(f.name, _named(_wire, f.type, f.name, where)) for f in schema])


def spark_schema(wire: pa.Schema) -> st.StructType:
    """The Spark columns of a schema that `wire_schema` made. All are nullable."""
    return st.StructType([st.StructField(f.name, _spark(f.type), nullable=True) for f in wire])


def arrow_schema(schema: st.StructType, where: str) -> pa.Schema:
    """The Arrow types in which Spark takes and gives columns of these types.

    Raises
    ------
    Unsupported
        Naming the column, for intervals, variants and other types without a place in Parquet.
    """
    return pa.schema([pa.field(f.name, _named(_arrow, f.dataType, f.name, where)) for f in schema.fields])


def frame_schema(schema: st.StructType, dataset: str, timestamps: Timestamps = "refuse") -> pa.Schema:
    """The types in which the columns of a Spark data frame are stored, checked from its schema alone.

    Raises
    ------
    InvalidInput
        For names that occur twice, and for ``timestamp`` columns unless ``timestamps="utc"``, which stores their instants as UTC times without a zone.
    Unsupported
        For intervals, variants and other types without a place in Parquet.
    """
    if timestamps not in ("refuse", "utc"):
        raise InvalidInput(f'timestamps={timestamps!r} is neither "refuse" nor "utc".')
    repeated = sorted({n for n in schema.names if schema.names.count(n) > 1})
    if repeated:
        raise InvalidInput(f'Duplicate columns found in dataset "{dataset}": {", ".join(repeated)}')
    if timestamps == "refuse":
        _refuse_zoned(schema, dataset)
    found = arrow_schema(schema, f"dataset {dataset!r}")
    return pa.schema([pa.field(f.name, _stored(f.type)) for f in found])


def _refuse_zoned(schema: st.StructType, dataset: str) -> None:
    zoned = [f.name for f in schema.fields if _is_zoned(f.dataType)]
    if zoned:
        raise InvalidInput(
            f"Column {zoned[0]!r} of dataset {dataset!r} is a Spark timestamp, an instant whose text depends on the session's time zone. Cast it: "
            f'F.col("{zoned[0]}").cast("timestamp_ntz"), or to date; or say timestamps="utc" to store UTC times. Columns concerned: {", ".join(zoned)}.'
        )


def _is_zoned(kind: st.DataType) -> bool:
    return isinstance(kind, st.TimestampType) or any(_is_zoned(k) for k in _children(kind))


def _children(kind: st.DataType) -> list[st.DataType]:
    if isinstance(kind, st.ArrayType):
        return [kind.elementType]
    if isinstance(kind, st.MapType):
        return [kind.keyType, kind.valueType]
    return [f.dataType for f in kind.fields] if isinstance(kind, st.StructType) else []


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type in which a column that came from Spark is stored."""
    if pt.is_timestamp(kind):
        return pa.timestamp("us")
    if pt.is_time(kind):
        return pa.time64("us")
    return _nested(kind, _stored) or kind


def _named(convert: Callable[[Any], pa.DataType], kind: object, column: str, where: str) -> pa.DataType:
    try:
        return convert(kind)
    except Unsupported as error:
        raise Unsupported(f"Column {column!r} of {where}: {error}") from None


def _wire(kind: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(kind):
        return _wire(kind.value_type)
    if pt.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pt.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    nested = _nested(kind, _wire)
    if nested is not None:
        return nested
    if any(same(kind) for same in _SAME):
        return kind
    return _view_or_changed(kind)


def _view_or_changed(kind: pa.DataType) -> pa.DataType:
    views = {"string_view": pa.string(), "binary_view": pa.binary()}
    changed = views.get(str(kind)) or next((to for applies, to in _CHANGED if applies(kind)), None)
    if changed is None:
        raise Unsupported(f"Spark has no type for {kind}. Cast the column to a plain type first.")
    return changed


def _nested(kind: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType | None:
    """A list, struct or map with converted elements; None for anything else."""
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(convert(kind.value_type))
    if pt.is_map(kind):
        return pa.map_(convert(kind.key_type), convert(kind.item_type))
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, convert(f.type)) for f in kind])
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


def _spark(kind: pa.DataType) -> st.DataType:
    if pt.is_decimal(kind):
        return st.DecimalType(kind.precision, kind.scale)
    if pt.is_list(kind):
        return st.ArrayType(_spark(kind.value_type))
    if pt.is_map(kind):
        return st.MapType(_spark(kind.key_type), _spark(kind.item_type))
    if pt.is_struct(kind):
        return st.StructType([st.StructField(f.name, _spark(f.type)) for f in kind])
    return _PLAIN[kind]


def _arrow(kind: st.DataType) -> pa.DataType:
    if isinstance(kind, st.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, st.ArrayType):
        return pa.list_(_arrow(kind.elementType))
    if isinstance(kind, st.MapType):
        return pa.map_(_arrow(kind.keyType), _arrow(kind.valueType))
    if isinstance(kind, st.StructType):
        return pa.struct([pa.field(f.name, _arrow(f.dataType)) for f in kind.fields])
    if isinstance(kind, (st.CharType, st.VarcharType)):
        return pa.string()
    if type(kind) not in _ARROW or isinstance(kind, st.DayTimeIntervalType):
        raise Unsupported(f"the Spark type {kind.simpleString()} cannot be stored. Cast it to a plain type, e.g. an interval to seconds, first.")
    return _ARROW[type(kind)]


def conform(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """The columns of a schema by name, in its order and types.

    Raises
    ------
    InvalidInput
        Naming the column that is missing or cannot be cast.
    """
    missing = [n for n in schema.names if n not in table.column_names]
    if missing:
        raise InvalidInput(f"The rows of {where} have no column {missing[0]!r}; they have {table.column_names}, and {schema.names} are needed.")
    return pa.table([_cast(table.column(f.name), f, where) for f in schema], schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field, where: str) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _gains_zone(column.type, field.type):
        raise InvalidInput(
            f"Column {field.name!r} of {where} has times without a zone, and a Spark timestamp is an instant. "
            "Declare it as timestamp_ntz, or give its times a zone."
        )
    try:
        coarse = _microseconds(column.type)
        # Spark has microseconds: what is finer is cut, as everywhere where times are stored. Nothing else may lose anything.
        return (column if coarse.equals(column.type) else column.cast(coarse, safe=False)).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInput(f"Column {field.name!r} of {where} is {column.type} and does not become {field.type}: {error}") from None


def _gains_zone(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether times without a zone would become instants, also inside of others: Arrow would take them for times in UTC."""
    if pt.is_timestamp(given) and pt.is_timestamp(wanted):
        return given.tz is None and wanted.tz is not None
    inner, needed = _inner(given), _inner(wanted)
    return any(_gains_zone(inner[name], needed[name]) for name in inner.keys() & needed.keys())


def _inner(kind: pa.DataType) -> dict[str, pa.DataType]:
    """The types inside of a list, struct or map."""
    if pt.is_struct(kind):
        return {f.name: f.type for f in kind}
    if pt.is_map(kind):
        return {"key": kind.key_type, "value": kind.item_type}
    return {"value": kind.value_type} if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind) else {}


def _microseconds(kind: pa.DataType) -> pa.DataType:
    """The same type with microseconds instead of nanoseconds, also inside of others."""
    if pt.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    return (pt.is_nested(kind) and _nested(kind, _microseconds)) or kind


def to_spark(table: pa.Table, schema: pa.Schema, where: str = "the result") -> Iterator[pa.RecordBatch]:
    """Batches as Spark takes them: it binds columns by position, casts nothing and swaps columns of one type silently."""
    if table.num_rows:
        typed = conform(table, schema, where)
        # Each chunk would become a batch of its own, however small.
        if max(c.num_chunks for c in typed.columns) > 1 + typed.num_rows // BATCH_ROWS:
            typed = typed.combine_chunks()
        yield from typed.to_batches(max_chunksize=BATCH_ROWS)
