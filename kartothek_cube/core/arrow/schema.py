"""Schemas in stored and normal types, ordered and unified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arrow.types import common_type, normal_type, stored_type
from kartothek_cube.errors import InvalidInput, Unsupported

__all__ = [
    "check_shared_columns",
    "compatible",
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
