"""Arrow types and schemas: stored, normal, and the common type of two.

In order:

- types
- schemas, ordered and unified
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.errors import InvalidInput, Unsupported

# Digits of decimal128, the widest decimal that is stored.
DIGITS = 38

_UNCHANGED: tuple[Callable[[pa.DataType], bool], ...] = (
    pt.is_null,
    pt.is_boolean,
    pt.is_integer,
    pt.is_float32,
    pt.is_float64,
)
# kartothek writes times and durations in one unit each, and compares types when it adds rows.
_CHANGED: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (lambda t: pt.is_string(t) or pt.is_large_string(t) or str(t) == "string_view", pa.string()),
    (lambda t: pt.is_binary(t) or pt.is_large_binary(t) or str(t) == "binary_view", pa.binary()),
    (pt.is_fixed_size_binary, pa.binary()),
    (pt.is_float16, pa.float32()),
    (pt.is_date, pa.date32()),
    (pt.is_time, pa.time64("us")),
    (pt.is_duration, pa.duration("ns")),
)


def stored_type(data_type: pa.DataType) -> pa.DataType:
    """The type in which a column of this type is stored and read.

    Dictionaries become their values; large, view and fixed-size variants the plain ones; timestamps
    and times microseconds, durations nanoseconds; half floats floats; decimals of up to 38 digits
    decimal128. The same holds inside lists, structs and maps.

    Raises
    ------
    Unsupported
        If the format cannot carry the type; the message names a type to cast to.

    Examples
    --------
    >>> import pyarrow as pa
    >>> stored_type(pa.large_list(pa.timestamp("ms")))
    ListType(list<item: timestamp[us]>)
    """
    if isinstance(data_type, pa.BaseExtensionType):
        raise Unsupported(_refusal(data_type))
    if pt.is_dictionary(data_type):
        return stored_type(data_type.value_type)
    if pt.is_timestamp(data_type):
        return pa.timestamp("us", tz=data_type.tz)
    if pt.is_decimal(data_type) and data_type.precision <= DIGITS:
        return pa.decimal128(data_type.precision, data_type.scale)
    if _shape(data_type) is not None:
        return _nested(data_type, [stored_type(child) for child in _children(data_type)])
    changed = next((stored for applies, stored in _CHANGED if applies(data_type)), None)
    if changed is None and not any(applies(data_type) for applies in _UNCHANGED):
        raise Unsupported(_refusal(data_type))
    return changed or data_type


def normal_type(data_type: pa.DataType) -> pa.DataType:
    """The type in ``_common_metadata``: numbers as wide as their family allows, also in lists.

    Examples
    --------
    >>> import pyarrow as pa
    >>> normal_type(pa.int8()), normal_type(pa.list_(pa.uint8()))
    (DataType(int64), ListType(list<item: uint64>))
    """
    if pt.is_signed_integer(data_type):
        return pa.int64()
    if pt.is_unsigned_integer(data_type):
        return pa.uint64()
    if pt.is_floating(data_type):
        return pa.float64()
    if pt.is_list(data_type):
        return pa.list_(normal_type(data_type.value_type))
    return data_type


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of two stored types; None if they are of different families.

    Null gives way to any type. Numbers and decimals widen, also inside lists, maps and structs of
    the same fields.

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
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return pa.decimal128(precision, scale) if precision <= DIGITS else None
    if _shape(left) is not None:
        if _shape(left) != _shape(right):
            return None
        children = [common_type(a, b) for a, b in zip(_children(left), _children(right), strict=True)]
        return None if None in children else _nested(left, children)
    if not normal_type(left).equals(normal_type(right)):
        return None
    return left if left.bit_width >= right.bit_width else right


def mapped_type(data_type: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A stored type in which all types that are not nested are converted.

    Examples
    --------
    >>> import pyarrow as pa
    >>> mapped_type(pa.list_(pa.int8()), lambda _: pa.string())
    ListType(list<item: string>)
    """
    if _shape(data_type) is None:
        return convert(data_type)
    return _nested(data_type, [mapped_type(child, convert) for child in _children(data_type)])


def _shape(data_type: pa.DataType) -> tuple[str, ...] | None:
    """A nested type without the types of its children; None for plain and unsupported types."""
    if pt.is_list(data_type) or pt.is_large_list(data_type) or pt.is_fixed_size_list(data_type):
        return ("list",)
    if pt.is_map(data_type):
        return ("map",)
    names = tuple(field.name for field in data_type) if pt.is_struct(data_type) else ()
    return ("struct", *names) if names and len(set(names)) == len(names) else None


def _children(data_type: pa.DataType) -> list[pa.DataType]:
    if pt.is_map(data_type):
        return [data_type.key_type, data_type.item_type]
    return [field.type for field in data_type] if pt.is_struct(data_type) else [data_type.value_type]


def _nested(data_type: pa.DataType, children: Sequence[Any]) -> pa.DataType:
    if pt.is_map(data_type):
        return pa.map_(*children)
    if pt.is_struct(data_type):
        return pa.struct([pa.field(field.name, child) for field, child in zip(data_type, children, strict=True)])
    return pa.list_(children[0])


# List views go through Python: Arrow's cast of list views to lists gives damaged arrays.
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


def _refusal(data_type: pa.DataType) -> str:
    if not isinstance(data_type, pa.BaseExtensionType):
        matching = (text for name, text in _ADVICE if str(data_type).startswith(name))
        advice = next(matching, "Cast the column to a plain type first.")
    elif data_type.extension_name == "pandas.period":
        advice = "Call .dt.to_timestamp() on the column first."
    elif data_type.extension_name == "pandas.interval":
        advice = "Make columns of its .array.left and .array.right."
    else:
        advice = f"Cast the column to {data_type.storage_type} first."
    return f"The type {data_type} cannot be stored. {advice}"


# --- schemas --------------------------------------------------------------------------------------


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


def is_nested(data_type: pa.DataType) -> bool:
    """Whether a type, or what it is stored as, is nested."""
    return bool(pa.types.is_nested(getattr(data_type, "storage_type", data_type)))
