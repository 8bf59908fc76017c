"""Constants in the type of their column: which are taken, and where they lie among its values."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from msgspec import Struct

from kartothek_cube.core.arrow.types import plain_type, stored_type
from kartothek_cube.errors import InvalidInput, InvalidType


class WrongOperand(InvalidType, InvalidInput):
    """A constant of the wrong form: a list instead of a value, the reverse, a text that is no date.

    It is a TypeError as in kartothek, and a ValueError as in plateau.
    """


_SECONDS = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NUMPY_MOMENTS = {np.dtype(f"datetime64[{unit}]") for unit in ("s", "ms", "us", "ns")}
# More digits than any constant has, so that nothing is rounded.
_EXACT = decimal.Context(prec=1_100)
# Day, time of day, fraction of a second, zone.
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:(?<=:\d\d:\d\d)\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?)?")


# --- which constants are taken --------------------------------------------------------------------


def without_arrow(value: object) -> Any:
    """A scalar of Arrow as its value in Python; anything else as it is."""
    return value.as_py() if hasattr(value, "as_py") else value


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_float(value: object) -> bool:
    # A longdouble may be a number that no double is.
    return isinstance(value, float) or (isinstance(value, np.floating) and value.itemsize <= 8)


def _is_decimal(value: object) -> bool:
    return isinstance(value, decimal.Decimal)


def _is_text(value: object) -> bool:
    if not isinstance(value, (str, bytes)):
        return False
    try:
        _text(value).encode()
    except UnicodeError:  # bytes of another encoding, or half of a surrogate pair
        return False
    return True


def _is_day(value: object) -> bool:
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def _is_date(value: object) -> bool:
    if not isinstance(value, (str, bytes)):
        return _is_day(value)
    try:
        dt.date.fromisoformat(_text(value))
    except ValueError:
        return False
    return True


def _is_moment(value: object) -> bool:
    return isinstance(value, (dt.datetime, np.datetime64))


def _has_zone(value: object) -> bool:
    return getattr(value, "tzinfo", None) is not None


def _is_iso(value: object, *, zoned: bool) -> bool:
    """Whether a text is a day or a moment, with a zone or without as the column."""
    if not _is_text(value):
        return False
    try:
        return _has_zone(_read_iso(value)[0]) == zoned
    except ValueError:
        return False


def _is_double(value: object, _data_type: pa.DataType) -> bool:
    """Whether a number of another kind is a double, or an integer, whose place is exact anyway."""
    return _is_integer(value) or (isinstance(value, decimal.Decimal) and float(value) == value)


def _has_scale(value: object, data_type: pa.DataType) -> bool:
    """Whether a number is no finer than the last decimal of a column."""
    if not isinstance(value, (float, np.floating)):
        return _is_integer(value)
    exponent = decimal.Decimal(float(value)).as_tuple().exponent
    return not isinstance(exponent, int) or exponent >= -data_type.scale


class ConstantRule(Struct, frozen=True):
    """Which constants a column of one family of types is compared with; a line of the table.

    Attributes
    ----------
    columns : str
        The family of types.
    applies : function
        Whether a type is of the family.
    own : str
        The constants of the column's own kind.
    also : str
        Other constants that mean one value without loss.
    refused : str
        What may look alike, but is an error.
    is_own, is_also : function
        Whether a constant is of the first kind, or of the second.
    """

    columns: str
    applies: Callable[[pa.DataType], bool]
    own: str
    also: str
    refused: str
    is_own: Callable[[Any, pa.DataType], bool]
    is_also: Callable[[Any, pa.DataType], bool] = lambda _value, _type: False


CONSTANTS = (
    ConstantRule(
        "boolean", pt.is_boolean, "`True`, `False`", "", "0, 1, text", lambda v, _: isinstance(v, (bool, np.bool_))
    ),
    ConstantRule(
        "integer",
        pt.is_integer,
        "integers of any size",
        "floats and `Decimal`, as numbers: `2.0` is 2, and 1.5 lies between 1 and 2",
        "`True`, text",
        lambda v, _: _is_integer(v),
        lambda v, _: _is_float(v) or _is_decimal(v),
    ),
    ConstantRule(
        "float",
        pt.is_floating,
        "floats",
        'integers, as numbers, also beyond 2**53; a `Decimal` that is a double, such as `Decimal("2.5")`',
        '`True`, text, `Decimal("0.1")`, which is no double',
        lambda v, _: _is_float(v),
        _is_double,
    ),
    ConstantRule(
        "decimal",
        pt.is_decimal,
        "`Decimal` of any scale",
        "integers; floats with no more decimals than the column, such as 2.5",
        "`True`, text, 0.1, which is a double and no decimal",
        lambda v, _: _is_decimal(v),
        _has_scale,
    ),
    ConstantRule("text", pt.is_string, "text, or bytes in UTF-8", "", "numbers, dates", lambda v, _: _is_text(v)),
    ConstantRule(
        "binary",
        pt.is_binary,
        "bytes or text",
        "",
        "numbers, dates",
        lambda v, _: isinstance(v, bytes) or _is_text(v),
    ),
    ConstantRule(
        "date",
        pt.is_date,
        "dates or their ISO text",
        "datetimes without a zone: a date is its midnight",
        "datetimes with a zone, other text",
        lambda v, _: _is_date(v),
        lambda v, _: _is_moment(v) and not _has_zone(v),
    ),
    ConstantRule(
        "timestamp",
        lambda data_type: pt.is_timestamp(data_type) and data_type.tz is None,
        "datetimes without a zone",
        'dates, which are their midnight; ISO text, such as `"2024-02-29"` or `"2024-02-29T12:00"`',
        "datetimes with a zone, text with a zone, other text",
        lambda v, _: _is_moment(v) and not _has_zone(v),
        lambda v, _: _is_day(v) or _is_iso(v, zoned=False),
    ),
    ConstantRule(
        "timestamp with zone",
        pt.is_timestamp,
        "datetimes; without a zone they are UTC",
        'ISO text with a zone, such as `"2024-02-29T12:00+01:00"`',
        "dates, text without a zone: midnight of which zone?",
        lambda v, _: _is_moment(v),
        lambda v, _: _is_iso(v, zoned=True),
    ),
    ConstantRule("all null", pt.is_null, "anything", "", "", lambda _value, _type: True),
)
"""The table on the page *Conditions*, which holds for predicates, conditions and every engine."""

_INCOMPARABLE = ConstantRule(
    "list, struct, time of day, duration",
    lambda _: True,
    "nothing but null, like all columns of its type",
    "",
    "",
    lambda _value, _type: False,
)


def _rule(data_type: pa.DataType) -> ConstantRule:
    return next((rule for rule in CONSTANTS if rule.applies(data_type)), _INCOMPARABLE)


def is_own_kind(value: object, data_type: pa.DataType) -> bool:
    """Whether a constant has the kind of the column.

    Engines compare numbers of two kinds as doubles, and moments of two kinds in other ways. Only
    constants of a column's own kind mean the same there and here.
    """
    data_type = stored_type(data_type)
    return _rule(data_type).is_own(value, data_type)


def check_literal(value: object, data_type: pa.DataType, column: str, context: str = "") -> None:
    """Raise `InvalidType` unless a constant may be compared with a column of this type.

    `CONSTANTS` has the rules.
    """
    check_literals((value,), data_type, column, context)


def check_literals(values: Iterable[Any], data_type: pa.DataType, column: str, context: str = "") -> None:
    """`check_literal` for many constants."""
    data_type = stored_type(data_type)
    rule = _rule(data_type)
    for value in map(without_arrow, values):
        if not (rule.is_own(value, data_type) or rule.is_also(value, data_type)):
            # Text may be a date, so both its type and its value are wrong.
            error = WrongOperand if pt.is_temporal(data_type) and isinstance(value, (str, bytes)) else InvalidType
            takes = f"{rule.own}{rule.also and '; '}{rule.also}".replace("`", "")
            raise error(
                f"Unexpected type for predicate: Column {column!r}{context} is {data_type}, "
                f"but the value is {value!r} ({type(value).__name__}). It takes {takes}.{_instead(value, data_type)}"
            )


def _instead(value: object, data_type: pa.DataType) -> str:
    """The constant that may have been meant."""
    if _is_float(value) and pt.is_decimal(data_type):
        return f" Write Decimal('{value}')."
    if _is_decimal(value) and pt.is_floating(data_type):
        return f" Write {value}, which is a double near by."
    if isinstance(value, str) and (pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_decimal(data_type)):
        return " Write the number without quotes."
    if isinstance(value, (dt.date, np.datetime64)) and pt.is_string(data_type):
        return f" Write the text '{value}', or store the column as dates."
    return ""


# --- the place of a constant ----------------------------------------------------------------------


class Literal(Struct, frozen=True):
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
    data_type, value = compared_type(data_type), without_arrow(value)
    if pt.is_integer(data_type):
        return _integer(value, data_type)
    if pt.is_timestamp(data_type):
        return _moment(value, data_type)
    if pt.is_decimal(data_type):
        if not _is_decimal(value):
            value = decimal.Decimal(int(value) if _is_integer(value) else float(value))
        return _decimal(value, data_type)
    if pt.is_floating(data_type):
        return _double(value, data_type)
    if pt.is_date(data_type) and _is_moment(value):
        # A date is a moment, its midnight: another moment of the day lies between two dates.
        place = _moment(value, pa.timestamp("s"))
        seconds = None if place.floor is None else place.floor.value
        if seconds is None or not _FIRST_DAY <= seconds // _DAY <= _LAST_DAY:
            is_early = seconds is None or seconds < 0
            return Literal(None if is_early else pa.scalar(dt.date.max, data_type), exact=False)
        floor = dt.date.fromordinal(_EPOCH.toordinal() + seconds // _DAY)
        return Literal(pa.scalar(floor, data_type), place.exact and seconds % _DAY == 0)
    if pt.is_string(data_type):
        value = _text(value)
    elif pt.is_binary(data_type) and isinstance(value, str):
        value = value.encode("utf-8")
    elif pt.is_date(data_type) and isinstance(value, (str, bytes)):
        value = dt.date.fromisoformat(_text(value))
    elif isinstance(value, np.generic):
        value = value.item()
    return Literal(pa.scalar(value, data_type))


# The numbers of the first and the last day that Python has.
_DAY = _SECONDS["D"]
_FIRST_DAY, _LAST_DAY = (day.toordinal() - _EPOCH.toordinal() for day in (dt.date.min, dt.date.max))


def compared_type(data_type: pa.DataType) -> pa.DataType:
    """The type in which the values of a column are compared with constants."""
    if pt.is_dictionary(data_type):
        return compared_type(data_type.value_type)
    # These have a `Literal` for every constant, so their values need no cast.
    is_exact = pt.is_integer(data_type) or pt.is_timestamp(data_type) or pt.is_decimal(data_type)
    return data_type if is_exact else plain_type(data_type)


def _integer(value: Any, data_type: pa.DataType) -> Literal:
    low, high = _range(data_type)
    if isinstance(value, np.floating) and value.itemsize <= 8:
        value = float(value)  # float16 would not hold the bounds
    if _is_integer(value):
        return _place(int(value), True, data_type)
    if not low <= value <= high:  # also infinities, and powers of ten that no integer should be made of
        return _place(low - 1 if value < low else high + 1, False, data_type)
    floor = math.floor(value)
    return _place(floor, floor == value, data_type)


def _double(value: Any, data_type: pa.DataType) -> Literal:
    if not _is_integer(value):
        return Literal(pa.scalar(float(value), data_type))
    exact = int(value)
    try:
        floor = float(exact)
    except OverflowError:
        floor = math.inf if exact > 0 else -math.inf
    # Python compares integers with floats exactly.
    return Literal(pa.scalar(math.nextafter(floor, -math.inf) if floor > exact else floor, data_type), floor == exact)


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
        fraction = 0
        if isinstance(value, (str, bytes)):
            value, fraction = _read_iso(value)
        elif _is_day(value):
            value = dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001 -- as naive as the column
        microseconds = dt.timedelta(microseconds=1)
        count, per_second = (value.replace(tzinfo=value.tzinfo or dt.UTC) - _EPOCH) // microseconds, 10**6
        count, per_second = (count * 1_000 + fraction, 10**9) if fraction else (count, per_second)
    ticks, rest = divmod(count * _PER_SECOND[data_type.unit], per_second)
    return _place(ticks, rest == 0, data_type)


def moment(ticks: int, unit: str, zone: str | None) -> dt.datetime | np.datetime64 | None:
    """A number of ticks since the epoch as a constant; None if no constant is so exact.

    Examples
    --------
    >>> moment(86_400, "s", None)
    datetime.datetime(1970, 1, 2, 0, 0)
    """
    microseconds, rest = divmod(ticks * 10**6, _PER_SECOND[unit])
    if rest:
        return np.datetime64(ticks, "ns") if zone is None else None
    found = _EPOCH + dt.timedelta(microseconds=microseconds)
    return found if zone is not None else found.replace(tzinfo=None)


def _decimal(value: decimal.Decimal, data_type: pa.DataType) -> Literal:
    if value.is_infinite() or (value and value.adjusted() >= data_type.precision - data_type.scale):
        low, high = _range(data_type)
        return _place(low - 1 if value.is_signed() else high + 1, False, data_type)
    floor = value.quantize(decimal.Decimal(1).scaleb(-data_type.scale), decimal.ROUND_FLOOR, _EXACT)
    return _place(int(floor.scaleb(data_type.scale, _EXACT)), floor == value, data_type)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _read_iso(value: object) -> tuple[dt.datetime, int]:
    """The moment of an ISO text to the second, and the nanoseconds after it; else `ValueError`."""
    match = _ISO.fullmatch(_text(value)) if isinstance(value, (str, bytes)) else None
    if match is None:
        raise ValueError(value)
    day, time, fraction, zone = match.groups(default="")
    return dt.datetime.fromisoformat(f"{day}T{time or '00:00'}{zone}"), int(fraction.ljust(9, "0"))


# The constants of which Arrow makes arrays without rounding, if their column is of the same family.
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pt.is_integer, (int, np.integer)),
    (pt.is_floating, (float, np.floating)),
    (pt.is_timestamp, (dt.datetime, np.datetime64)),
    (pt.is_decimal, ()),
)


def _is_plain(values: list[Any], data_type: pa.DataType) -> bool:
    types = set(map(type, values))
    if pt.is_date(data_type):
        return types <= {dt.date}
    plain = next((plain for applies, plain in _PLAIN if applies(data_type)), (object,))
    return all(issubclass(t, plain) for t in types)


def literal_array(values: Iterable[Any], data_type: pa.DataType) -> pa.Array:
    """Constants as an array of the `compared_type`, without those that no value can equal."""
    data_type, values = compared_type(data_type), list(map(without_arrow, values))
    if pt.is_null(data_type):
        return pa.array([], type=data_type)
    if _is_plain(values, data_type):
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
