"""Arrow types: how each is stored, what two of them have in common, and how the schema file spells them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.errors import Unsupported

__all__ = ["common_type", "normal_type", "stored_type"]

DIGITS = 38

_AS_IT_IS: tuple[Callable[[pa.DataType], bool], ...] = (
    pt.is_null,
    pt.is_boolean,
    pt.is_integer,
    pt.is_float32,
    pt.is_float64,
)
# Times and durations in the one unit that kartothek writes, so that it can add to a dataset that
# has them.
_CHANGED: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (lambda kind: pt.is_string(kind) or pt.is_large_string(kind) or str(kind) == "string_view", pa.string()),
    (
        lambda kind: (
            pt.is_binary(kind)
            or pt.is_large_binary(kind)
            or str(kind) == "binary_view"
            or pt.is_fixed_size_binary(kind)
        ),
        pa.binary(),
    ),
    (pt.is_float16, pa.float32()),
    (pt.is_date, pa.date32()),
    (pt.is_time, pa.time64("us")),
    (pt.is_duration, pa.duration("ns")),
)


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a column of this type is stored and given back.

    Dictionaries become their values; large, view and fixed-size variants the plain ones; timestamps
    and times microseconds, durations nanoseconds; half floats floats; decimals of up to 38 digits
    decimal128. Inside lists, structs and maps the same.

    Raises
    ------
    Unsupported
        If the format cannot carry the type; the message says what to cast to.

    Examples
    --------
    >>> import pyarrow as pa
    >>> stored_type(pa.large_list(pa.timestamp("ms")))
    ListType(list<item: timestamp[us]>)
    """
    if isinstance(kind, pa.BaseExtensionType):
        raise Unsupported(_refusal(kind))
    if pt.is_dictionary(kind):
        return stored_type(kind.value_type)
    if pt.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pt.is_decimal(kind) and kind.precision <= DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    shape = _shape(kind)
    if shape is not None:
        return _nested(kind, [stored_type(child) for child in _children(kind)])
    changed = next((stored for applies, stored in _CHANGED if applies(kind)), None)
    if changed is None and not any(applies(kind) for applies in _AS_IT_IS):
        raise Unsupported(_refusal(kind))
    return changed or kind


def normal_type(kind: pa.DataType) -> pa.DataType:
    """kartothek's normal form, as in ``_common_metadata``: numbers as wide as their family allows, in lists, too.

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


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of two stored types; None if they are not of one family.

    Null gives way to any type; numbers and decimals widen; in lists, maps and structs of the same
    fields their parts do.

    Examples
    --------
    >>> import pyarrow as pa
    >>> common_type(pa.decimal128(3, 2), pa.decimal128(5, 1))
    Decimal128Type(decimal128(6, 2))
    >>> common_type(pa.int64(), pa.float64()) is None
    True
    """
    if left.equals(right) or pt.is_null(right):
        return left
    if pt.is_null(left):
        return right
    if pt.is_decimal(left) and pt.is_decimal(right):
        return _common_decimal(left, right)
    if _shape(left) is not None:
        return _common_nested(left, right)
    if not normal_type(left).equals(normal_type(right)):
        return None
    return left if left.bit_width >= right.bit_width else right


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    return pa.decimal128(precision, scale) if precision <= DIGITS else None


def _common_nested(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if _shape(left) != _shape(right):
        return None
    children = [common_type(a, b) for a, b in zip(_children(left), _children(right), strict=True)]
    return None if None in children else _nested(left, children)


def _shape(kind: pa.DataType) -> tuple[str, ...] | None:
    """What a nested type is but for the types of its parts; None for a plain type, and for those that cannot be stored."""
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return ("list",)
    if pt.is_map(kind):
        return ("map",)
    names = tuple(field.name for field in kind) if pt.is_struct(kind) else ()
    return ("struct", *names) if names and len(set(names)) == len(names) else None


def _children(kind: pa.DataType) -> list[pa.DataType]:
    if pt.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [field.type for field in kind] if pt.is_struct(kind) else [kind.value_type]


def _nested(kind: pa.DataType, children: Sequence[Any]) -> pa.DataType:
    if pt.is_map(kind):
        return pa.map_(*children)
    if pt.is_struct(kind):
        return pa.struct([pa.field(field.name, child) for field, child in zip(kind, children, strict=True)])
    return pa.list_(children[0])


# Arrow's cast of list views to lists gives damaged arrays.
_ADVICE = (
    ("list_view", "Make lists of it: pyarrow.array(column.to_pylist())."),
    ("large_list_view", "Make lists of it: pyarrow.array(column.to_pylist())."),
    ("run_end_encoded", "Call pyarrow.compute.run_end_decode on the column first."),
    ("month_", "Store months, days and nanoseconds in columns of their own."),
    ("dense_union", "Make a column for each of its types."),
    ("sparse_union", "Make a column for each of its types."),
    ("struct", "A struct needs fields, each with a name of its own."),
    ("decimal", f"Decimals have at most {DIGITS} digits: cast the column to decimal128({DIGITS}, ...) or float64."),
)


def _refusal(kind: pa.DataType) -> str:
    if not isinstance(kind, pa.BaseExtensionType):
        advice = next(
            (text for name, text in _ADVICE if str(kind).startswith(name)), "Cast the column to a plain type first."
        )
    elif kind.extension_name == "pandas.period":
        advice = "Call .dt.to_timestamp() on the column first."
    elif kind.extension_name == "pandas.interval":
        advice = "Make columns of its .array.left and .array.right."
    else:
        advice = f"Cast the column to {kind.storage_type} first."
    return f"The type {kind} cannot be stored. {advice}"
