"""Schemas: in stored and normal types, in order, unified; and how a literal is cast to a type."""

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


def stored_schema(schema: pa.Schema, where: str = "") -> pa.Schema:
    """`stored_type` for every field, without metadata; the error names the column."""
    fields = []
    for field in schema:
        try:
            fields.append(pa.field(field.name, stored_type(field.type)))
        except Unsupported as error:
            raise Unsupported(f"Column {field.name!r}{where}: {error}") from None
    return pa.schema(fields)


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """`normal_type` for every field."""
    return pa.schema([pa.field(f.name, normal_type(f.type)) for f in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The widest type of the same family, in which constants are compared."""
    return normal_type(stored_type(kind))


def ordered(schema: pa.Schema, partition_keys: Sequence[str]) -> pa.Schema:
    """Partition keys first, then the other columns by name: the order of fields in ``_common_metadata``."""
    names = [
        *(k for k in partition_keys if k in schema.names),
        *sorted(n for n in schema.names if n not in set(partition_keys)),
    ]
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
        raise InvalidInput(
            f"Schema violation in {where}: missing columns {missing}, surplus columns {surplus}. The columns must be {left.names}."
        )
    return pa.schema([pa.field(f.name, _widen(f.type, right.field(f.name).type, f.name, where)) for f in left])


def _widen(left: pa.DataType, right: pa.DataType, column: str, where: str) -> pa.DataType:
    common = common_type(left, right)
    if common is None:
        raise InvalidInput(
            f"Schema violation in {where}: column {column!r} is {left} but {right} was given. Cast it to {left} first{_with_gaps(left, right)}."
        )
    return common


def _with_gaps(wanted: pa.DataType, given: pa.DataType) -> str:
    """How pandas casts whole numbers of which some are missing, which it has made floats."""
    if not (pt.is_integer(wanted) and pt.is_floating(given)):
        return ""
    return f", in pandas to {str(wanted).replace('uint', 'UInt').replace('int', 'Int')} if values are missing"


def compatible(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two stored types are of one family: equal but for their width, or one of them is null."""
    return common_type(left, right) is not None


# --- literals -------------------------------------------------------------------------------------


class WrongOperand(InvalidType, InvalidInput):
    """A constant in a wrong form: a list where one value belongs, the reverse, a text that is no date.

    It is a TypeError for kartothek's callers and a ValueError for plateau's.
    """


_SECONDS = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NUMPY_MOMENTS = {np.dtype(f"datetime64[{unit}]") for unit in ("s", "ms", "us", "ns")}
_EXACT = decimal.Context(prec=100)


def check_shared_columns(schemas: Mapping[str, pa.Schema], uuid: str) -> None:
    """Refuse columns that have different types in two tables of a dataset."""
    seen: dict[str, tuple[str, pa.DataType]] = {}
    for table, schema in schemas.items():
        for column in schema:
            other, kind = seen.get(column.name, (table, column.type))
            if not compatible(kind, column.type):
                raise InvalidInput(
                    f"Found incompatible entries for column {column.name!r} of dataset {uuid!r}: {kind} in table {other!r}, {column.type} in table {table!r}."
                )
            seen[column.name] = (table, column.type) if pt.is_null(kind) else (other, kind)


def _is_integer(value: object, _kind: pa.DataType) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_text(value: object, _kind: pa.DataType) -> bool:
    if not isinstance(value, (str, bytes)):
        return False
    try:
        _text(value).encode()
    except UnicodeError:  # bytes of another encoding, or half of a surrogate pair
        return False
    return True


def _is_date(value: object, _kind: pa.DataType) -> bool:
    return (isinstance(value, dt.date) and not isinstance(value, dt.datetime)) or _is_iso_date(value)


def _is_iso_date(value: object) -> bool:
    try:
        return isinstance(value, (str, bytes)) and bool(dt.date.fromisoformat(_text(value)))
    except ValueError:
        return False


def _is_timestamp(value: object, kind: pa.DataType) -> bool:
    if not isinstance(value, (dt.datetime, np.datetime64)):
        return False
    return bool(getattr(value, "tzinfo", None) is None or kind.tz is not None)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Which constants may be compared with columns of one family of types."""

    applies: Callable[[pa.DataType], bool]
    takes: str
    fits: Callable[[Any, pa.DataType], bool]


_RULES = (
    _Rule(pt.is_boolean, "True and False", lambda v, _: isinstance(v, (bool, np.bool_))),
    _Rule(pt.is_integer, "integers", _is_integer),
    _Rule(pt.is_floating, "floats, such as 2.0", lambda v, _: isinstance(v, (float, np.floating))),
    _Rule(pt.is_string, "text, or bytes in UTF-8", _is_text),
    _Rule(pt.is_binary, "bytes or text", lambda v, kind: isinstance(v, bytes) or _is_text(v, kind)),
    _Rule(pt.is_date, "dates or their ISO text", _is_date),
    _Rule(pt.is_timestamp, "datetimes (with a zone only if the column has one)", _is_timestamp),
    _Rule(pt.is_decimal, "decimal.Decimal", lambda v, _: isinstance(v, decimal.Decimal)),
    _Rule(pt.is_null, "anything", lambda v, _: True),
)
_INCOMPARABLE = _Rule(lambda _: True, "nothing but null, like all columns of its type", lambda v, _: False)


def check_literal(value: object, kind: pa.DataType, column: str, where: str = "", *, strict: bool = False) -> None:
    """Raise `InvalidType` unless a constant may be compared with a column of this type.

    An integer column takes integers of Python and NumPy, a float column floats, a string column
    ``str`` (or UTF-8 bytes), a binary column ``bytes`` (or ``str``), a date column dates or ISO
    text, a timestamp column datetimes, a decimal column ``Decimal``; a column that is null
    throughout takes anything. Lists, structs, times of day and durations are not compared.

    ``strict`` is the rule of cubes: integers of NumPy have the sign of their column, decimals are
    not compared.
    """
    if strict and (
        pt.is_decimal(kind)
        or (
            isinstance(value, np.integer)
            and isinstance(value, np.unsignedinteger) != bool(pt.is_unsigned_integer(kind))
        )
    ):
        raise _misfit(
            value,
            kind,
            column,
            where,
            "Cubes compare no decimals, and integers of NumPy only with columns of their sign.",
        )
    check_literals((value,), kind, column, where)


def check_literals(values: Iterable[Any], kind: pa.DataType, column: str, where: str = "") -> None:
    """`check_literal` for many constants."""
    kind = stored_type(kind)
    rule = next((rule for rule in _RULES if rule.applies(kind)), _INCOMPARABLE)
    for value in values:
        if not rule.fits(value, kind):
            raise _misfit(value, kind, column, where, f"It takes {rule.takes}.")


def _misfit(value: object, kind: pa.DataType, column: str, where: str, hint: str) -> InvalidType:
    # Text may stand for a date: what is wrong is its value then, as well as its type.
    error = WrongOperand if pt.is_date(kind) and isinstance(value, (str, bytes)) else InvalidType
    return error(
        f"Unexpected type for predicate: Column {column!r}{where} is {kind}, but the value is {value!r} ({type(value).__name__}). {hint}"
    )


@dataclass(frozen=True, slots=True)
class Literal:
    """Where a constant stands among the values of a type: ``floor`` is the greatest one that is not above it, ``exact`` whether it is the constant.

    ``floor`` is None for a constant below all values.
    """

    floor: pa.Scalar | None
    exact: bool = True


def literal(value: Any, kind: pa.DataType) -> Literal:
    """A constant that `check_literal` let pass, for comparisons with a column of this type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> literal(2.5, pa.float32())
    Literal(floor=<pyarrow.DoubleScalar: 2.5>, exact=True)
    >>> literal(300, pa.int8())
    Literal(floor=<pyarrow.Int8Scalar: 127>, exact=False)
    """
    kind = compared_type(kind)
    if pt.is_integer(kind):
        return _place(int(value), True, kind)
    if pt.is_timestamp(kind):
        return _moment(value, kind)
    if pt.is_decimal(kind):
        return _decimal(value, kind)
    return Literal(pa.scalar(_python_literal(value, kind), kind))


def compared_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values of a column meet constants: where a constant has a place among the values, the column's own."""
    if pt.is_dictionary(kind):
        return compared_type(kind.value_type)
    own = pt.is_integer(kind) or pt.is_timestamp(kind) or pt.is_decimal(kind)
    return kind if own else plain_type(kind)


def _place(ticks: int, exact: bool, kind: pa.DataType) -> Literal:
    """The literal for a number of the type's smallest steps, which may be more than the type can hold."""
    low, high = _range(kind)
    if ticks < low:
        return Literal(None, exact=False)
    return Literal(_scalar_of(min(ticks, high), kind), exact and ticks <= high)


def _range(kind: pa.DataType) -> tuple[int, int]:
    if pt.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    low = 0 if pt.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
    return low, low + 2**kind.bit_width - 1


def _scalar_of(ticks: int, kind: pa.DataType) -> pa.Scalar:
    if pt.is_decimal(kind):
        return pa.scalar(decimal.Decimal(ticks).scaleb(-kind.scale, _EXACT), kind)
    return pa.scalar(ticks, pa.int64()).cast(kind) if pt.is_timestamp(kind) else pa.scalar(ticks, kind)


def _moment(value: Any, kind: pa.DataType) -> Literal:
    if hasattr(value, "to_datetime64"):  # of a pandas Timestamp, in UTC
        value = value.to_datetime64()
    if isinstance(value, np.datetime64):
        count, per_second = _numpy_moment(value)
    else:
        count, per_second = (
            (value.replace(tzinfo=value.tzinfo or dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1),
            10**6,
        )
    ticks, rest = divmod(count * _PER_SECOND[kind.unit], per_second)
    return _place(ticks, rest == 0, kind)


def _numpy_moment(value: np.datetime64) -> tuple[int, int]:
    """A moment as a count of parts of a second since 1970, and how many of them a second has."""
    if np.datetime_data(value)[0] in ("Y", "M"):
        value = value.astype("datetime64[D]")
    unit, step = np.datetime_data(value)
    count = int(value.astype(np.int64)) * step
    return (count, _PER_SECOND[unit]) if unit in _PER_SECOND else (count * _SECONDS[unit], 1)


def _decimal(value: decimal.Decimal, kind: pa.DataType) -> Literal:
    if value.is_infinite() or (value and value.adjusted() >= kind.precision - kind.scale):
        low, high = _range(kind)
        return _place(low - 1 if value.is_signed() else high + 1, False, kind)
    floor = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_FLOOR, _EXACT)
    return _place(int(floor.scaleb(kind.scale, _EXACT)), floor == value, kind)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _python_literal(value: Any, kind: pa.DataType) -> Any:
    if pt.is_string(kind):
        return _text(value)
    if pt.is_binary(kind) and isinstance(value, str):
        return value.encode("utf-8")
    if pt.is_date(kind) and isinstance(value, (str, bytes)):
        return dt.date.fromisoformat(_text(value))
    if pt.is_floating(kind):
        return float(value)
    return value.item() if isinstance(value, np.generic) else value


def literal_array(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Constants as one array of the `compared_type`; those that no value of the column can equal are left out."""
    kind, values = compared_type(kind), list(values)
    if pt.is_null(kind):
        return pa.array([], type=kind)
    if not pt.is_decimal(kind):  # which Arrow would round
        try:
            return _vectorised(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass  # mixed spellings, or out of range: one by one
    found = [place.floor for place in (literal(v, kind) for v in values) if place.exact and place.floor is not None]
    if pt.is_timestamp(kind):
        return pa.array([s.value for s in found], type=pa.int64()).cast(kind)
    return pa.array([s.as_py() for s in found], type=kind)


def _vectorised(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not pt.is_timestamp(kind):
        return pa.array(values, type=kind)
    types = {getattr(value, "dtype", type(value)) for value in values}
    if len(types) == 1 and types <= _NUMPY_MOMENTS:
        return pa.array(np.array(values)).cast(kind)
    # In these units nothing is rounded, and the cast refuses to.
    return pa.array(values, type=pa.timestamp("us" if types <= {dt.datetime} else "ns", tz=kind.tz)).cast(kind)
