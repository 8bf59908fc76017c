"""`SchemaWrapper`, and kartothek's functions that make, compare, read and write schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arrow.pandas import is_block, is_frame, is_series, to_frame, to_table
from kartothek_cube.core.arrow.types import compatible, normal_schema, normal_type, ordered, stored_schema, unify
from kartothek_cube.core.metadata.naming import schema_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes, pandas_types, parse_common_metadata
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound, UnknownColumn
from kartothek_cube.typing import StoreLike

if TYPE_CHECKING:
    import pandas as pd


# Characters: a schema that was merged from thousands of files names all of them.
_SHOWN_ORIGINS = 200
# pandas' prefix for columns with row labels that have no name.
_OF_ROW_LABELS = "__index_level_"


class SchemaWrapper:
    """An Arrow schema that knows its origin.

    Other attributes are those of the Arrow schema: ``names``, ``field``, ``types`` …. Schemas are
    equal if their columns are equal; metadata and origins do not count.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns.
    origin : str or set of str
        Where the columns were found; for error messages only.

    Raises
    ------
    InvalidType
        If an argument has another type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sales = SchemaWrapper(pa.schema({"PRODUCT_ID": pa.int64()}), "sales/table/_common_metadata")
    >>> sales.names, sales.origin
    (['PRODUCT_ID'], {'sales/table/_common_metadata'})
    """

    __slots__ = ("_origin", "_schema")

    def __init__(self, schema: pa.Schema | SchemaWrapper, origin: str | Iterable[str]) -> None:
        self._schema = _arrow(schema)
        self._origin = _origins(origin)

    def internal(self) -> pa.Schema:
        """The Arrow schema."""
        return self._schema

    @property
    def origin(self) -> set[str]:
        """Where the schema was found."""
        return set(self._origin)

    def with_origin(self, origin: str | Iterable[str]) -> SchemaWrapper:
        """The schema with another origin."""
        return SchemaWrapper(self._schema, origin)

    def remove(self, i: int) -> SchemaWrapper:
        """The schema without column *i*."""
        return SchemaWrapper(self._schema.remove(i), self._origin)

    def set(self, i: int, field: pa.Field) -> SchemaWrapper:
        """The schema with column *i* replaced."""
        return SchemaWrapper(self._schema.set(i, field), self._origin)

    def remove_metadata(self) -> SchemaWrapper:
        """The schema without metadata; the origins say so."""
        return SchemaWrapper(self._schema.remove_metadata(), [f"{o}__no_metadata" for o in self._origin])

    def equals(self, other: SchemaWrapper | pa.Schema, check_metadata: bool = False) -> bool:
        """Whether the columns are the same, and with ``check_metadata`` the metadata."""
        return bool(self._schema.equals(_arrow(other), check_metadata=check_metadata))

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, (SchemaWrapper, pa.Schema)) else NotImplemented

    def __hash__(self) -> int:
        # Equal types may have different spellings (`list<item>`, `list<element>`); names do not.
        return hash(tuple(self._schema.names))

    def __len__(self) -> int:
        return len(self._schema)

    def __iter__(self) -> Iterator[pa.Field]:
        return iter(self._schema)

    def __getitem__(self, key: int | str) -> pa.Field:
        return self._schema[key]

    def __getattr__(self, name: str) -> Any:
        # Unpickling and copying ask for private names before `_schema` exists.
        if name.startswith("_") and name != "__arrow_c_schema__":
            raise AttributeError(name)
        return getattr(self._schema, name)

    def __repr__(self) -> str:
        return str(self._schema.to_string())

    def __reduce__(self) -> tuple[object, ...]:
        return (SchemaWrapper, (self._schema, self._origin))


def _arrow(schema: object) -> pa.Schema:
    if isinstance(schema, SchemaWrapper):
        return schema.internal()
    if not isinstance(schema, pa.Schema):
        raise InvalidType(f"A schema should be a pyarrow.Schema or a SchemaWrapper, but is {type(schema).__name__}.")
    return schema


def _origins(origin: object) -> frozenset[str]:
    if isinstance(origin, str):
        return frozenset([origin])
    origin = list(origin) if isinstance(origin, Iterable) else [origin]
    if not all(isinstance(o, str) for o in origin):
        raise InvalidType(f"Schema origin elements must be strings; give a str or a set of str, not {origin!r}.")
    return frozenset(origin)


# --- making ---------------------------------------------------------------------------------------


def make_meta(
    obj: object, origin: str | Iterable[str], partition_keys: str | Sequence[str] | None = None
) -> SchemaWrapper:
    """The stored schema of a table: numbers in 64 bits, partition keys first, the rest by name.

    Parameters
    ----------
    obj : pandas.DataFrame, pyarrow.Schema, pyarrow.Table or SchemaWrapper
        Has the columns; row labels are ignored. It is not changed.
    origin : str or set of str
        Origin of the schema; a `SchemaWrapper` keeps its own.
    partition_keys : str or list of str, optional
        Columns to put first; missing columns are ignored.

    Raises
    ------
    InvalidInput
        If ``obj`` has another type, or a column name occurs twice.
    Unsupported
        If the format has no type for a column.

    Examples
    --------
    >>> import pandas as pd
    >>> sales = pd.DataFrame({"SALES": [1.5], "COUNTRY_CODE": ["DE"], "AGE": [1]})
    >>> make_meta(sales, "sales", ["COUNTRY_CODE"]).names
    ['COUNTRY_CODE', 'AGE', 'SALES']
    """
    if isinstance(obj, SchemaWrapper):
        origin = obj.origin
    if is_frame(obj):
        schema = to_table(_with_text_names(cast("pd.DataFrame", obj)), "to describe").schema
    elif isinstance(obj, (SchemaWrapper, pa.Schema)):
        schema = _without_row_labels(_arrow(obj))
    elif not is_series(obj) and is_block(obj):
        # A table has a schema; other blocks export one by `__arrow_c_schema__`.
        exported = cast("pa.Schema", getattr(obj, "schema", obj))
        schema = _without_row_labels(pa.schema(exported))
    else:
        raise InvalidInput(f"Input must be a pyarrow schema, or a pandas dataframe, but is {type(obj).__name__}.")
    _check_unique(schema.names)
    schema = stored_schema(schema, f" of {_shown(_origins(origin))}")
    return normalize_column_order(SchemaWrapper(normal_schema(schema), origin), partition_keys)


def _with_text_names(frame: pd.DataFrame) -> pd.DataFrame:
    """A shallow copy with text as column names: kartothek's users have bytes and numbers there."""
    import pandas as pd

    columns: list[object] = list(frame.columns)
    names = [c.decode("utf-8") if isinstance(c, bytes) else str(c) for c in columns]
    _check_unique(names)
    renamed = frame.copy(deep=False)
    renamed.columns = pd.Index(names, dtype=object)
    return renamed


def _check_unique(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise InvalidInput(f"Duplicate column names found: {names}. Rename all but one of each.")


def _without_row_labels(schema: pa.Schema) -> pa.Schema:
    """The schema without the columns for the index of a frame."""
    described = (schema.pandas_metadata or {}).get("index_columns", [])
    labels = {c for c in described if isinstance(c, str)}  # a dict describes a range, without a column
    return pa.schema([f for f in schema if f.name not in labels and not f.name.startswith(_OF_ROW_LABELS)])


def normalize_type(
    t_pa: pa.DataType, t_pd: str | None, t_np: str | None, metadata: dict[str, object] | None
) -> tuple[pa.DataType, str | None, str | None, dict[str, object] | None]:
    """A type as in stored schemas: Arrow type, names for pandas and NumPy, metadata.

    Examples
    --------
    >>> import pyarrow as pa
    >>> normalize_type(pa.int8(), "int8", "int8", None)
    (DataType(int64), 'int64', 'int64', None)
    """
    if pt.is_dictionary(t_pa):  # the format stores the values of a dictionary
        value = normal_type(t_pa.value_type)
        return (value, *pandas_types(value))
    normal = normal_type(t_pa)
    if pt.is_list(normal) or pt.is_integer(normal) or pt.is_floating(normal):
        return (normal, *pandas_types(normal))
    return normal, t_pd, t_np, metadata


def normalize_column_order(
    schema: SchemaWrapper | pa.Schema, partition_keys: str | Sequence[str] | None = None
) -> SchemaWrapper:
    """The schema with the partition keys first, in their order, and the other columns by name.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sales = pa.schema({"SALES": pa.float64(), "COUNTRY_CODE": pa.string(), "AGE": pa.int64()})
    >>> normalize_column_order(sales, "COUNTRY_CODE").names
    ['COUNTRY_CODE', 'AGE', 'SALES']
    """
    keys = [partition_keys] if isinstance(partition_keys, str) else list(partition_keys or [])
    arrow = _arrow(schema)
    origin = schema.origin if isinstance(schema, SchemaWrapper) else {"__unknown__"}
    return SchemaWrapper(ordered(arrow, keys).with_metadata(arrow.metadata), origin)


# --- comparing ------------------------------------------------------------------------------------


def validate_compatible(
    schemas: Iterable[SchemaWrapper | pa.Schema],
    ignore_pandas: bool = False,
) -> SchemaWrapper | None:
    """The common schema of several: equal columns in equal order.

    A column of type null takes its type from another schema.

    Parameters
    ----------
    schemas : iterable of SchemaWrapper
        The schemas to compare; without any the result is None.
    ignore_pandas : bool
        Accepted from kartothek; metadata never count here.

    Raises
    ------
    InvalidInput
        If the schemas differ: *Schema violation*, with origins and differences.

    Examples
    --------
    >>> import pyarrow as pa
    >>> old = SchemaWrapper(pa.schema({"PROMOTION": pa.string()}), "old")
    >>> new = SchemaWrapper(pa.schema({"PROMOTION": pa.null()}), "new")
    >>> validate_compatible([new, old])
    PROMOTION: string
    """
    result: SchemaWrapper | None = None
    for schema in (s if isinstance(s, SchemaWrapper) else SchemaWrapper(s, "__unknown__") for s in schemas):
        if result is None:
            result = schema
            continue
        context = f"{_shown(schema.origin)}, compared with {_shown(result.origin)}"
        unified = unify([result.internal().remove_metadata(), schema.internal().remove_metadata()], context)
        if result.names != schema.names:
            raise InvalidInput(
                f"Schema violation in {context}: the columns have another order, {schema.names} instead of "
                f"{result.names}. Make both by make_meta with partition_keys."
            )
        result = SchemaWrapper(unified.with_metadata(result.metadata), result.origin | schema.origin)
    return result


def _shown(origins: Iterable[str]) -> str:
    text = ", ".join(sorted(origins))
    return text if len(text) <= _SHOWN_ORIGINS else f"{text[:_SHOWN_ORIGINS]}..."


def validate_shared_columns(schemas: Iterable[SchemaWrapper | pa.Schema], ignore_pandas: bool = False) -> None:
    """Check that columns of equal name have equal types in all tables; null matches any type.

    Raises
    ------
    InvalidInput
        If types differ: *Found incompatible entries for column*.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sales, products = pa.schema({"ID": pa.int64()}), pa.schema({"ID": pa.string()})
    >>> validate_shared_columns([sales, products])
    Traceback (most recent call last):
    ...
    kartothek_cube.errors.InvalidInput: Found incompatible entries for column "ID": int64 ...
    """
    seen: dict[str, pa.DataType] = {}
    for field in (f for schema in schemas for f in _arrow(schema)):
        first = seen.get(field.name, pa.null())
        if not compatible(first, field.type):
            raise InvalidInput(
                f'Found incompatible entries for column "{field.name}": {first} in one table, {field.type} in another.'
            )
        if pt.is_null(first):
            seen[field.name] = field.type


# --- frames and files -----------------------------------------------------------------------------


def empty_dataframe_from_schema(
    schema: SchemaWrapper | pa.Schema,
    columns: Sequence[str] | None = None,
    date_as_object: bool = False,
    coerce_temporal_nanoseconds: bool = True,
) -> pd.DataFrame:
    """A frame without rows, with the columns of a schema.

    Parameters
    ----------
    schema : SchemaWrapper or pyarrow.Schema
        The columns and their types.
    columns : list of str, optional
        Columns of the frame, in this order; by default all.
    date_as_object : bool, default False
        Whether date columns have the dtype ``object`` instead of ``datetime64``.
    coerce_temporal_nanoseconds : bool
        Accepted from plateau; the unit of moments is that of the schema.

    Raises
    ------
    UnknownColumn
        If the schema lacks a column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> schema = pa.schema({"PRODUCT_ID": pa.int64(), "SALES": pa.float64()})
    >>> empty_dataframe_from_schema(schema, ["SALES"]).dtypes.to_dict()
    {'SALES': dtype('float64')}
    """
    arrow = _without_row_labels(_arrow(schema))
    names = arrow.names if columns is None else list(columns)
    unknown = [c for c in names if c not in arrow.names]
    if unknown:
        raise UnknownColumn(f"The schema has no columns {unknown}. It has {arrow.names}.")
    return to_frame(stored_schema(arrow).empty_table().select(names), dates_as_object=date_as_object)


def read_schema_metadata(dataset_uuid: str, store: StoreLike, table: str = "table") -> SchemaWrapper:
    """Read the schema file of a table.

    Raises
    ------
    KeyNotFound
        If the file does not exist.
    CorruptDocument
        If the file is no schema file.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> store_schema_metadata(pa.schema({"PRODUCT_ID": pa.int32()}), "sales", store)
    'sales/table/_common_metadata'
    >>> read_schema_metadata("sales", store)
    PRODUCT_ID: int64
    """
    opened, key = open_instrumented(store), schema_key(dataset_uuid, table)
    try:
        data = opened.get(key)
    except KeyNotFound:
        raise KeyNotFound(
            f"The schema file {key!r} of dataset {dataset_uuid!r} is missing in the store {opened.name}."
        ) from None
    return SchemaWrapper(normal_schema(parse_common_metadata(data, key)), key)


def store_schema_metadata(
    schema: SchemaWrapper | pa.Schema, dataset_uuid: str, store: StoreLike, table: str = "table"
) -> str:
    """Write the schema file of a table, with columns in the given order; return its key.

    Raises
    ------
    Unsupported
        If the format has no type for a column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> store_schema_metadata(pa.schema({"PRODUCT_ID": pa.int64()}), "sales", "hmemory://")
    'sales/table/_common_metadata'
    """
    key = schema_key(dataset_uuid, table)
    open_instrumented(store).put(key, common_metadata_bytes(stored_schema(_arrow(schema))))
    return key
