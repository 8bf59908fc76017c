"""Schemas in stored and normal types, ordered and unified; and literals in the type of a column."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arrow.types import common_type, normal_type, stored_type
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

__all__ = [
    "Literal",
    "WrongOperand",
    "check_literal",
    "check_literals",
    "check_shared_columns",
    "compared_type",
    "compatible",
    "literal",
    "literal_array",
    "normal_schema",
    "normal_type",
    "ordered",
    "plain_type",
    "stored_schema",
    "stored_type",
    "unify",
]


def stored_schema(schema: pa.Schema, context: str = "") -> pa.Schema:
    """`stored_type` for every field, without metadata; the error names the column."""
    fields = []
    for field in schema:
        try:
            fields.append(pa.field(field.name, stored_type(field.type)))
        except Unsupported as error:
            raise Unsupported(f"Column {field.name!r}{context}: {error}") from None
    return pa.schema(fields)


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """`normal_type` for every field."""
    return pa.schema([pa.field(f.name, normal_type(f.type)) for f in schema])


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The widest type of the same family."""
    return normal_type(stored_type(data_type))


def ordered(schema: pa.Schema, partition_keys: Sequence[str]) -> pa.Schema:
    """Partition keys first, the others by name: the order of fields in ``_common_metadata``."""
    keys = [key for key in partition_keys if key in schema.names]
    others = sorted(name for name in schema.names if name not in set(partition_keys))
    return pa.schema([schema.field(name) for name in (*keys, *others)])


def unify(schemas: Iterable[pa.Schema], context: str) -> pa.Schema:
    """The schema that holds the values of all schemas, which must have the same columns.

    Null gives way to any type; types widen within their family.

    Raises
    ------
    InvalidInput
        With the words *Schema violation*, the context, the column and both types.
    """
    result: pa.Schema | None = None
    for schema in schemas:
        result = schema if result is None else _unify_two(result, schema, context)
    if result is None:
        raise InvalidInput(f"No schema given for {context}.")
    return result


def _unify_two(left: pa.Schema, right: pa.Schema, context: str) -> pa.Schema:
    missing, surplus = sorted(set(left.names) - set(right.names)), sorted(set(right.names) - set(left.names))
    if missing or surplus:
        raise InvalidInput(
            f"Schema violation in {context}: missing columns {missing}, surplus columns {surplus}. "
            f"The columns must be {left.names}."
        )
    fields = []
    for field in left:
        data_type = right.field(field.name).type
        common = common_type(field.type, data_type)
        if common is None:
            hint = ""
            if pt.is_integer(field.type) and pt.is_floating(data_type):
                # pandas has made integers with missing values floats.
                nullable = str(field.type).replace("uint", "UInt").replace("int", "Int")
                hint = f", in pandas to {nullable} if values are missing"
            raise InvalidInput(
                f"Schema violation in {context}: column {field.name!r} is {field.type} but {data_type} was given. "
                f"Cast it to {field.type} first{hint}."
            )
        fields.append(pa.field(field.name, common))
    return pa.schema(fields)


def compatible(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two stored types are of one family: they differ only in width, or one is null."""
    return common_type(left, right) is not None


def check_shared_columns(schemas: Mapping[str, pa.Schema], uuid: str) -> None:
    """Raise for columns whose types differ between two tables of a dataset."""
    seen: dict[str, tuple[str, pa.DataType]] = {}
    for table, schema in schemas.items():
        for column in schema:
            other, data_type = seen.get(column.name, (table, column.type))
            if not compatible(data_type, column.type):
                raise InvalidInput(
                    f"Found incompatible entries for column {column.name!r} of dataset {uuid!r}: "
                    f"{data_type} in table {other!r}, {column.type} in table {table!r}."
                )
            seen[column.name] = (table, column.type) if pt.is_null(data_type) else (other, data_type)


# --- literals -------------------------------------------------------------------------------------


class WrongOperand(InvalidType, InvalidInput):
    """A constant of the wrong form: a list instead of a value, the reverse, a text that is no date.

    It is a TypeError as in kartothek, and a ValueError as in plateau.
    """


_SECONDS = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NUMPY_MOMENTS = {np.dtype(f"datetime64[{unit}]") for unit in ("s", "ms", "us", "ns")}
# More digits than any constant has, so that nothing is rounded.
_EXACT = decimal.Context(prec=100)


def _is_text(value: object, _data_type: pa.DataType) -> bool:
    if not isinstance(value, (str, bytes)):
        return False
    try:
        _text(value).encode()
    except UnicodeError:  # bytes of another encoding, or half of a surrogate pair
        return False
    return True


def _is_date(value: object, _data_type: pa.DataType) -> bool:
    if not isinstance(value, (str, bytes)):
        return isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    try:
        dt.date.fromisoformat(_text(value))
    except ValueError:
        return False
    return True


def _is_timestamp(value: object, data_type: pa.DataType) -> bool:
    if not isinstance(value, (dt.datetime, np.datetime64)):
        return False
    return bool(getattr(value, "tzinfo", None) is None or data_type.tz is not None)


@dataclass(frozen=True, slots=True)
class _Rule:
    """The constants that may be compared with columns of one family of types."""

    applies: Callable[[pa.DataType], bool]
    takes: str
    fits: Callable[[Any, pa.DataType], bool]


_RULES = (
    _Rule(pt.is_boolean, "True and False", lambda v, _: isinstance(v, (bool, np.bool_))),
    _Rule(pt.is_integer, "integers", lambda v, _: isinstance(v, (int, np.integer)) and not isinstance(v, bool)),
    _Rule(pt.is_floating, "floats, such as 2.0", lambda v, _: isinstance(v, (float, np.floating))),
    _Rule(pt.is_string, "text, or bytes in UTF-8", _is_text),
    _Rule(pt.is_binary, "bytes or text", lambda v, data_type: isinstance(v, bytes) or _is_text(v, data_type)),
    _Rule(pt.is_date, "dates or their ISO text", _is_date),
    _Rule(pt.is_timestamp, "datetimes (with a zone only if the column has one)", _is_timestamp),
    _Rule(pt.is_decimal, "decimal.Decimal", lambda v, _: isinstance(v, decimal.Decimal)),
    _Rule(pt.is_null, "anything", lambda v, _: True),
)
_INCOMPARABLE = _Rule(lambda _: True, "nothing but null, like all columns of its type", lambda v, _: False)


def check_literal(
    value: object, data_type: pa.DataType, column: str, context: str = "", *, strict: bool = False
) -> None:
    """Raise `InvalidType` unless a constant may be compared with a column of this type.

    An integer column takes integers of Python and NumPy, a float column floats, a string column
    ``str`` (or UTF-8 bytes), a binary column ``bytes`` (or ``str``), a date column dates or ISO
    text, a timestamp column datetimes, a decimal column ``Decimal``. A column of type null takes
    anything. Lists, structs, times of day and durations are not compared.

    ``strict`` is the rule of cubes: signed integers of NumPy need a signed column and unsigned ones
    an unsigned column; decimals are not compared.
    """
    is_unsigned = isinstance(value, np.unsignedinteger)
    other_sign = isinstance(value, np.integer) and is_unsigned != bool(pt.is_unsigned_integer(data_type))
    if strict and (pt.is_decimal(data_type) or other_sign):
        hint = "Cubes compare no decimals, and integers of NumPy only with columns of their sign."
        raise _misfit(value, data_type, column, context, hint)
    check_literals((value,), data_type, column, context)


def check_literals(values: Iterable[Any], data_type: pa.DataType, column: str, context: str = "") -> None:
    """`check_literal` for many constants."""
    data_type = stored_type(data_type)
    rule = next((rule for rule in _RULES if rule.applies(data_type)), _INCOMPARABLE)
    for value in values:
        if not rule.fits(value, data_type):
            raise _misfit(value, data_type, column, context, f"It takes {rule.takes}.")


def _misfit(value: object, data_type: pa.DataType, column: str, context: str, hint: str) -> InvalidType:
    # Text may be a date, so both its type and its value are wrong.
    error = WrongOperand if pt.is_date(data_type) and isinstance(value, (str, bytes)) else InvalidType
    return error(
        f"Unexpected type for predicate: Column {column!r}{context} is {data_type}, "
        f"but the value is {value!r} ({type(value).__name__}). {hint}"
    )


@dataclass(frozen=True, slots=True)
class Literal:
    """The position of a constant among the values of a type.

    ``floor`` is the greatest value that is not above the constant, and None if all are above.
    ``exact`` is true if ``floor`` equals the constant.
    """

    floor: pa.Scalar | None
    exact: bool = True


def literal(value: Any, data_type: pa.DataType) -> Literal:
    """A constant that `check_literal` has accepted, for comparisons with a column of this type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> literal(2.5, pa.float32())
    Literal(floor=<pyarrow.DoubleScalar: 2.5>, exact=True)
    >>> literal(300, pa.int8())
    Literal(floor=<pyarrow.Int8Scalar: 127>, exact=False)
    """
    data_type = compared_type(data_type)
    if pt.is_integer(data_type):
        return _place(int(value), True, data_type)
    if pt.is_timestamp(data_type):
        return _moment(value, data_type)
    if pt.is_decimal(data_type):
        return _decimal(value, data_type)
    if pt.is_string(data_type):
        value = _text(value)
    elif pt.is_binary(data_type) and isinstance(value, str):
        value = value.encode("utf-8")
    elif pt.is_date(data_type) and isinstance(value, (str, bytes)):
        value = dt.date.fromisoformat(_text(value))
    elif pt.is_floating(data_type):
        value = float(value)
    elif isinstance(value, np.generic):
        value = value.item()
    return Literal(pa.scalar(value, data_type))


def compared_type(data_type: pa.DataType) -> pa.DataType:
    """The type in which the values of a column are compared with constants."""
    if pt.is_dictionary(data_type):
        return compared_type(data_type.value_type)
    # These have a `Literal` for every constant, so their values need no cast.
    is_exact = pt.is_integer(data_type) or pt.is_timestamp(data_type) or pt.is_decimal(data_type)
    return data_type if is_exact else plain_type(data_type)


def _place(ticks: int, exact: bool, data_type: pa.DataType) -> Literal:
    """The literal for a number of ticks, the smallest steps of the type; it may be out of range."""
    low, high = _range(data_type)
    if ticks < low:
        return Literal(None, exact=False)
    floor = min(ticks, high)
    if pt.is_decimal(data_type):
        scalar = pa.scalar(decimal.Decimal(floor).scaleb(-data_type.scale, _EXACT), data_type)
    elif pt.is_timestamp(data_type):
        scalar = pa.scalar(floor, pa.int64()).cast(data_type)
    else:
        scalar = pa.scalar(floor, data_type)
    return Literal(scalar, exact and ticks <= high)


def _range(data_type: pa.DataType) -> tuple[int, int]:
    """The least and the greatest number of ticks."""
    if pt.is_decimal(data_type):
        return 1 - 10**data_type.precision, 10**data_type.precision - 1
    low = 0 if pt.is_unsigned_integer(data_type) else -(2 ** (data_type.bit_width - 1))
    return low, low + 2**data_type.bit_width - 1


def _moment(value: Any, data_type: pa.DataType) -> Literal:
    if hasattr(value, "to_datetime64"):  # of a pandas Timestamp, in UTC
        value = value.to_datetime64()
    if isinstance(value, np.datetime64):
        if np.datetime_data(value)[0] in ("Y", "M"):  # of varying length
            value = value.astype("datetime64[D]")
        unit, step = np.datetime_data(value)
        count, per_second = int(value.astype(np.int64)) * step, _PER_SECOND.get(unit, 1)
        count *= 1 if unit in _PER_SECOND else _SECONDS[unit]
    else:
        microseconds = dt.timedelta(microseconds=1)
        count, per_second = (value.replace(tzinfo=value.tzinfo or dt.UTC) - _EPOCH) // microseconds, 10**6
    ticks, rest = divmod(count * _PER_SECOND[data_type.unit], per_second)
    return _place(ticks, rest == 0, data_type)


def _decimal(value: decimal.Decimal, data_type: pa.DataType) -> Literal:
    if value.is_infinite() or (value and value.adjusted() >= data_type.precision - data_type.scale):
        low, high = _range(data_type)
        return _place(low - 1 if value.is_signed() else high + 1, False, data_type)
    floor = value.quantize(decimal.Decimal(1).scaleb(-data_type.scale), decimal.ROUND_FLOOR, _EXACT)
    return _place(int(floor.scaleb(data_type.scale, _EXACT)), floor == value, data_type)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def literal_array(values: Iterable[Any], data_type: pa.DataType) -> pa.Array:
    """Constants as an array of the `compared_type`, without those that no value can equal."""
    data_type, values = compared_type(data_type), list(values)
    if pt.is_null(data_type):
        return pa.array([], type=data_type)
    if not pt.is_decimal(data_type):  # Arrow would round decimals
        try:
            if not pt.is_timestamp(data_type):
                return pa.array(values, type=data_type)
            types = {getattr(value, "dtype", type(value)) for value in values}
            if len(types) == 1 and types <= _NUMPY_MOMENTS:
                return pa.array(np.array(values)).cast(data_type)
            # These units hold every constant exactly; a cast that would round raises.
            unit = "us" if types <= {dt.datetime} else "ns"
            return pa.array(values, type=pa.timestamp(unit, tz=data_type.tz)).cast(data_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass  # mixed spellings, or out of range: one by one
    literals = [literal(value, data_type) for value in values]
    scalars = [place.floor for place in literals if place.exact and place.floor is not None]
    if pt.is_timestamp(data_type):
        # The datetimes of Python that `as_py` gives have no nanoseconds.
        return pa.array([s.value for s in scalars], type=pa.int64()).cast(data_type)
    return pa.array([s.as_py() for s in scalars], type=data_type)
