"""Types: which are stored how, which are compatible, how they widen, and how a literal is cast to them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

__all__ = [
    "check_literal",
    "literal_array",
    "literal_scalar",
    "normal_schema",
    "normal_type",
    "ordered",
    "plain_type",
    "stored_schema",
    "stored_type",
    "unify",
]

# Parquet gives times of day in seconds back in milliseconds.
_LARGE = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.date64(): pa.date32(), pa.time32("s"): pa.time32("ms")}


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a column of this type is stored and given back; `Unsupported` if the format cannot carry it.

    Dictionaries become their values, large and view variants the plain ones, timestamps microseconds.
    """
    if pt.is_dictionary(kind):
        return stored_type(kind.value_type)
    if pt.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return pa.list_(stored_type(kind.value_type))
    if _is_view(kind):
        return pa.string() if "string" in str(kind) else pa.binary()
    _refuse(kind)
    return _LARGE.get(kind, kind)


def _is_view(kind: pa.DataType) -> bool:
    return str(kind) in ("string_view", "binary_view")


_REFUSED = (
    *("halffloat", "decimal256", "decimal32", "decimal64", "month_", "dense_union", "sparse_union"),
    *("run_end", "extension", "list_view", "large_list_view"),
)


def _refuse(kind: pa.DataType) -> None:
    if str(kind).startswith(_REFUSED):
        raise Unsupported(f"The type {kind} cannot be stored; cast the column to float32/float64, decimal128 or another plain type first.")
    for child in kind if pt.is_struct(kind) else ():
        _refuse(child.type)


def stored_schema(schema: pa.Schema, where: str = "") -> pa.Schema:
    """`stored_type` for every field, without metadata; the error names the column."""
    fields = []
    for field in schema:
        try:
            fields.append(pa.field(field.name, stored_type(field.type)))
        except Unsupported as error:
            raise Unsupported(f"Column {field.name!r}{where}: {error}") from None
    return pa.schema(fields)


def normal_type(kind: pa.DataType) -> pa.DataType:
    """kartothek's normal form, as in ``_common_metadata``: numbers as wide as their family allows.

    Examples
    --------
    >>> import pyarrow as pa
    >>> normal_type(pa.int8()), normal_type(pa.list_(pa.uint8()))
    (DataType(int64), ListType(list<item: uint64>))
    """
    if pt.is_signed_integer(kind):
        return pa.int64()
    if pt.is_unsigned_integer(kind):
        return pa.uint64()
    if pt.is_floating(kind):
        return pa.float64()
    if pt.is_list(kind):
        return pa.list_(normal_type(kind.value_type))
    return kind


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """`normal_type` for every field."""
    return pa.schema([pa.field(f.name, normal_type(f.type)) for f in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The widest type of the same family, in which constants are compared."""
    return normal_type(stored_type(kind))


def ordered(schema: pa.Schema, partition_keys: Sequence[str]) -> pa.Schema:
    """Partition keys first, then the other columns by name: the order of fields in ``_common_metadata``."""
    names = [*(k for k in partition_keys if k in schema.names), *sorted(n for n in schema.names if n not in set(partition_keys))]
    return pa.schema([schema.field(n) for n in names])


def unify(schemas: Iterable[pa.Schema], where: str) -> pa.Schema:
    """The one schema that holds them all: equal columns, null gives way to a type, widths widen within their family.

    Raises
    ------
    InvalidInput
        With the words *Schema violation*, the place, and for each column what was found.
    """
    result: pa.Schema | None = None
    for schema in schemas:
        result = schema if result is None else _unify_two(result, schema, where)
    if result is None:
        raise InvalidInput(f"No schema given for {where}.")
    return result


def _unify_two(left: pa.Schema, right: pa.Schema, where: str) -> pa.Schema:
    missing, surplus = sorted(set(left.names) - set(right.names)), sorted(set(right.names) - set(left.names))
    if missing or surplus:
        raise InvalidInput(f"Schema violation in {where}: missing columns {missing}, surplus columns {surplus}. The columns must be {left.names}.")
    return pa.schema([pa.field(f.name, _widen(f.type, right.field(f.name).type, f.name, where)) for f in left])


def _widen(left: pa.DataType, right: pa.DataType, column: str, where: str) -> pa.DataType:
    if left.equals(right) or pt.is_null(right):
        return left
    if pt.is_null(left):
        return right
    if not compatible(left, right):
        raise InvalidInput(f"Schema violation in {where}: column {column!r} is {left} but {right} was given. Cast it to {left} first.")
    return left if _width(left) >= _width(right) else right


def compatible(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two stored types are the same but for their width, or one of them is null."""
    return bool(pt.is_null(left) or pt.is_null(right) or normal_type(left).equals(normal_type(right)))


def _width(kind: pa.DataType) -> int:
    return _width(kind.value_type) if pt.is_list(kind) else int(getattr(kind, "bit_width", 0)) if pt.is_primitive(kind) else 0


# --- literals ---------------------------------------------------------------------------------------------------------

_INTEGER = (int, np.integer)
_FLOAT = (float, np.floating)
_TIMESTAMP = (dt.datetime, np.datetime64)


def _is_integer(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, _INTEGER):
        return False
    if isinstance(value, np.integer):
        return isinstance(value, np.unsignedinteger) == bool(pt.is_unsigned_integer(kind))
    return True


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, (str, bytes)) and isinstance(_text(value), str)
    except UnicodeDecodeError:
        return False


def _is_date(value: Any, _kind: pa.DataType) -> bool:
    return (isinstance(value, dt.date) and not isinstance(value, dt.datetime)) or _is_iso_date(value)


def _is_iso_date(value: Any) -> bool:
    try:
        return isinstance(value, (str, bytes)) and bool(dt.date.fromisoformat(_text(value)))
    except ValueError:
        return False


def _is_timestamp(value: Any, kind: pa.DataType) -> bool:
    if not isinstance(value, _TIMESTAMP):
        return False
    return bool(getattr(value, "tzinfo", None) is None or kind.tz is not None)


_FITS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], bool]], ...] = (
    (pt.is_boolean, lambda v, k: isinstance(v, (bool, np.bool_))),
    (pt.is_integer, _is_integer),
    (pt.is_floating, lambda v, k: isinstance(v, _FLOAT)),
    (pt.is_string, lambda v, k: _is_text(v)),
    (pt.is_binary, lambda v, k: isinstance(v, (str, bytes))),
    (pt.is_date, _is_date),
    (pt.is_timestamp, _is_timestamp),
)


def check_literal(value: Any, kind: pa.DataType, column: str, where: str = "") -> None:
    """Raise `InvalidType` unless a constant may be compared with a column of this type.

    An integer column takes integers, a float column floats, a string column ``str`` (or UTF-8 bytes), a date column
    dates or ISO text, a timestamp column datetimes; a column that is null throughout takes anything. Decimals, lists and
    other types are not compared.
    """
    kind = stored_type(kind)
    if pt.is_null(kind):
        return
    fits = next((check for applies, check in _FITS if applies(kind)), None)
    if fits is None or not fits(value, kind):
        raise InvalidType(f"Unexpected type for predicate: column {column!r}{where} is {kind}, but the value is {value!r} ({type(value).__name__}).")


def literal_scalar(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """A constant as a scalar that compares with a column of this type; None for an integer out of the type's range.

    A moment between two microseconds comes in nanoseconds, the only case in which the type is not `plain_type`.
    """
    plain = plain_type(kind)
    if pt.is_integer(plain) and not isinstance(value, (bool, np.bool_)):
        value = int(value)
        low, high = (0, 2**64 - 1) if pt.is_uint64(plain) else (-(2**63), 2**63 - 1)
        return pa.scalar(value, plain) if low <= value <= high else None
    if pt.is_timestamp(plain):
        return _timestamp_scalar(value, plain)
    return pa.scalar(_python_literal(value, plain), plain)


def _timestamp_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, np.datetime64):
        return _numpy_moment(value, kind)
    if getattr(value, "nanosecond", None):  # of a pandas Timestamp
        return _numpy_moment(value.to_datetime64(), kind)
    year, month, day, hour, minute, second = value.timetuple()[:6]
    value = dt.datetime(year, month, day, hour, minute, second, value.microsecond, tzinfo=value.tzinfo, fold=value.fold)
    if kind.tz is not None and value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return pa.scalar(value, kind)


def _numpy_moment(value: np.datetime64, kind: pa.DataType) -> pa.Scalar:
    # Nanoseconds reach from 1677 to 2262 only, so that they are used for nothing else.
    if np.datetime_data(value)[0] not in ("ns", "ps", "fs", "as"):
        return _moment(int(value.astype("datetime64[us]").astype(np.int64)), kind)
    nanos = int(value.astype("datetime64[ns]").astype(np.int64))
    return _moment(nanos, pa.timestamp("ns", tz=kind.tz)) if nanos % 1000 else _moment(nanos // 1000, kind)


def _moment(ticks: int, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(ticks, pa.int64()).cast(kind)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _python_literal(value: Any, kind: pa.DataType) -> Any:
    if pt.is_string(kind):
        return _text(value)
    if pt.is_binary(kind) and isinstance(value, str):
        return value.encode("utf-8")
    if pt.is_date(kind) and isinstance(value, (str, bytes)):
        return dt.date.fromisoformat(_text(value))
    return value.item() if isinstance(value, np.generic) else value


def literal_array(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Constants as one array; those that no value of the column can equal are left out."""
    plain = plain_type(kind)
    if pt.is_null(plain):
        return pa.array([], type=plain)
    scalars = (literal_scalar(v, plain) for v in values)
    fitting = [s for s in scalars if s is not None and s.type.equals(plain)]
    if pt.is_timestamp(plain):
        return pa.array([s.value for s in fitting], type=pa.int64()).cast(plain)
    return pa.array([s.as_py() for s in fitting], type=plain)
