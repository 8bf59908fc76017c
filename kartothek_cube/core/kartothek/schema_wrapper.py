"""`SchemaWrapper` and kartothek's functions on schemas: making, ordering, comparing, reading and writing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.arrow.pandas import is_block, is_frame, is_series, to_frame, to_table
from kartothek_cube.core.arrow.schema import compatible, normal_schema, ordered, stored_schema, unify
from kartothek_cube.core.arrow.types import normal_type
from kartothek_cube.core.metadata.naming import schema_key
from kartothek_cube.core.metadata.schema_file import common_metadata_bytes, pandas_types, parse_common_metadata
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound, UnknownColumn
from kartothek_cube.typing import StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SchemaWrapper",
    "empty_dataframe_from_schema",
    "make_meta",
    "normalize_column_order",
    "normalize_type",
    "read_schema_metadata",
    "store_schema_metadata",
    "validate_compatible",
    "validate_shared_columns",
]

_SHOWN_ORIGINS = 200
_OF_ROW_LABELS = "__index_level_"


class SchemaWrapper:
    """An Arrow schema that knows where it comes from.

    What it lacks itself it takes from the Arrow schema: ``names``, ``field``, ``types`` ….

    Schemas are equal if their columns are, whatever their metadata and origins.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns.
    origin : str or set of str
        Where they were found; for error messages only.

    Raises
    ------
    InvalidType
        If the arguments are something else.

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
        """The same with another origin."""
        return SchemaWrapper(self._schema, origin)

    def remove(self, i: int) -> SchemaWrapper:
        """The schema without column *i*."""
        return SchemaWrapper(self._schema.remove(i), self._origin)

    def set(self, i: int, field: pa.Field) -> SchemaWrapper:
        """The schema with another column *i*."""
        return SchemaWrapper(self._schema.set(i, field), self._origin)

    def remove_metadata(self) -> SchemaWrapper:
        """The schema without metadata, marked so in its origins."""
        return SchemaWrapper(self._schema.remove_metadata(), [f"{o}__no_metadata" for o in self._origin])

    def equals(self, other: SchemaWrapper | pa.Schema, check_metadata: bool = False) -> bool:
        """Whether the columns are the same, and with ``check_metadata`` the metadata."""
        return bool(self._schema.equals(_arrow(other), check_metadata=check_metadata))

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, (SchemaWrapper, pa.Schema)) else NotImplemented

    def __hash__(self) -> int:
        # Equal types may be spelled differently (``list<item>``, ``list<element>``), equal names
        # are not.
        return hash(tuple(self._schema.names))

    def __len__(self) -> int:
        return len(self._schema)

    def __iter__(self) -> Iterator[pa.Field]:
        return iter(self._schema)

    def __getitem__(self, key: int | str) -> pa.Field:
        return self._schema[key]

    def __getattr__(self, name: str) -> Any:
        if (
            name.startswith("_") and name != "__arrow_c_schema__"
        ):  # not there yet while a copy or an unpickled object is being made
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
    """The schema of a table in the form in which it is stored: numbers as wide as their family, partition keys first, the others by name.

    Parameters
    ----------
    obj : pandas.DataFrame, pyarrow.Schema, pyarrow.Table or SchemaWrapper
        What has the columns; row labels are none. It is left as it is.
    origin : str or set of str
        Where it comes from; a `SchemaWrapper` keeps its own.
    partition_keys : str or list of str, optional
        The columns to put first; those that there are not are passed over.

    Raises
    ------
    InvalidInput
        If ``obj`` is something else, or a column name occurs twice.
    Unsupported
        If the format cannot carry the type of a column.

    Examples
    --------
    >>> import pandas as pd
    >>> make_meta(pd.DataFrame({"SALES": [1.5], "COUNTRY_CODE": ["DE"], "AGE": [1]}), "sales", ["COUNTRY_CODE"]).names
    ['COUNTRY_CODE', 'AGE', 'SALES']
    """
    if isinstance(obj, SchemaWrapper):
        origin = obj.origin
    schema = stored_schema(_columns(obj), f" of {_shown(_origins(origin))}")
    return normalize_column_order(SchemaWrapper(normal_schema(schema), origin), partition_keys)


def _columns(obj: Any) -> pa.Schema:
    if is_frame(obj):
        return to_table(_with_text_names(obj), "to describe").schema
    if isinstance(obj, (SchemaWrapper, pa.Schema)):
        schema = _without_row_labels(_arrow(obj))
    elif not is_series(obj) and is_block(obj):
        schema = _without_row_labels(pa.schema(obj.schema if hasattr(obj, "schema") else obj))
    else:
        raise InvalidInput(f"Input must be a pyarrow schema, or a pandas dataframe, but is {type(obj).__name__}.")
    _check_unique(schema.names)
    return schema


def _with_text_names(frame: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    columns: list[Any] = list(frame.columns)
    names = [c.decode("utf-8") if isinstance(c, bytes) else str(c) for c in columns]
    _check_unique(names)
    renamed = frame.copy(deep=False)
    renamed.columns = pd.Index(names, dtype=object)
    return renamed


def _check_unique(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise InvalidInput(f"Duplicate column names found: {names}. Rename all but one of each.")


def _without_row_labels(schema: pa.Schema) -> pa.Schema:
    """Without the columns that hold the index of a frame."""
    labels = set(_index_columns(schema))
    return pa.schema([f for f in schema if f.name not in labels and not f.name.startswith(_OF_ROW_LABELS)])


def _index_columns(schema: pa.Schema) -> list[str]:
    described = schema.pandas_metadata or {}
    return [c for c in described.get("index_columns", []) if isinstance(c, str)]


def normalize_type(
    t_pa: pa.DataType, t_pd: str | None, t_np: str | None, metadata: dict[str, object] | None
) -> tuple[pa.DataType, str | None, str | None, dict[str, object] | None]:
    """A type in the form in which schemas are stored: Arrow type, names for pandas and numpy, further description.

    Examples
    --------
    >>> import pyarrow as pa
    >>> normalize_type(pa.int8(), "int8", "int8", None)
    (DataType(int64), 'int64', 'int64', None)
    """
    if pt.is_dictionary(t_pa):
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
    ignore_pandas: bool = False,  # noqa: ARG001 - kartothek's signature
) -> SchemaWrapper | None:
    """The schema that several have in common: equal columns in equal order; a column that is null throughout in one takes its type from another.

    Parameters
    ----------
    schemas : iterable of SchemaWrapper
        What to compare; without any the result is None.
    ignore_pandas : bool
        Accepted from kartothek; metadata never make schemas different here.

    Raises
    ------
    InvalidInput
        With the words *Schema violation*, the origins, and what differs.

    Examples
    --------
    >>> import pyarrow as pa
    >>> new, old = (SchemaWrapper(pa.schema({"PROMOTION": kind}), "sales") for kind in (pa.null(), pa.string()))
    >>> validate_compatible([new, old])
    PROMOTION: string
    """
    result: SchemaWrapper | None = None
    for schema in (s if isinstance(s, SchemaWrapper) else SchemaWrapper(s, "__unknown__") for s in schemas):
        result = schema if result is None else _common(result, schema)
    return result


def _common(left: SchemaWrapper, right: SchemaWrapper) -> SchemaWrapper:
    where = f"{_shown(right.origin)}, compared with {_shown(left.origin)}"
    schema = unify([left.internal().remove_metadata(), right.internal().remove_metadata()], where)
    if left.names != right.names:
        raise InvalidInput(
            f"Schema violation in {where}: the columns have another order, {right.names} instead of {left.names}. Make both by make_meta with partition_keys."
        )
    return SchemaWrapper(schema.with_metadata(left.metadata), left.origin | right.origin)


def _shown(origins: Iterable[str]) -> str:
    text = ", ".join(sorted(origins))
    return text if len(text) <= _SHOWN_ORIGINS else f"{text[:_SHOWN_ORIGINS]}..."


def validate_shared_columns(schemas: Iterable[SchemaWrapper | pa.Schema], ignore_pandas: bool = False) -> None:  # noqa: ARG001
    """Refuse tables that use one column name for different types; null throughout goes with any.

    Raises
    ------
    InvalidInput
        With the words *Found incompatible entries for column*.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sales, products = pa.schema({"PRODUCT_ID": pa.int64()}), pa.schema({"PRODUCT_ID": pa.string()})
    >>> validate_shared_columns([sales, products])
    Traceback (most recent call last):
    ...
    kartothek_cube.errors.InvalidInput: Found incompatible entries for column "PRODUCT_ID": int64 in one table, string in another.
    """
    seen: dict[str, pa.DataType] = {}
    for field in (f for schema in schemas for f in _arrow(schema)):
        known = seen.get(field.name, pa.null())
        if not compatible(known, field.type):
            raise InvalidInput(
                f'Found incompatible entries for column "{field.name}": {known} in one table, {field.type} in another.'
            )
        if pt.is_null(known):
            seen[field.name] = field.type


# --- frames and files -----------------------------------------------------------------------------


def empty_dataframe_from_schema(
    schema: SchemaWrapper | pa.Schema, columns: Sequence[str] | None = None, date_as_object: bool = False
) -> pd.DataFrame:
    """A frame without rows that has the columns of a schema.

    Parameters
    ----------
    schema : SchemaWrapper or pyarrow.Schema
        The columns and their types.
    columns : list of str, optional
        Which of them, in this order; by default all.
    date_as_object : bool, default False
        Whether date columns have the dtype object instead of a datetime one.

    Raises
    ------
    UnknownColumn
        If the schema lacks a column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> empty_dataframe_from_schema(pa.schema({"PRODUCT_ID": pa.int64(), "SALES": pa.float64()}), ["SALES"]).dtypes.to_dict()
    {'SALES': dtype('float64')}
    """
    arrow = _without_row_labels(_arrow(schema))
    names = arrow.names if columns is None else list(columns)
    unknown = [c for c in names if c not in arrow.names]
    if unknown:
        raise UnknownColumn(f"The schema has no columns {unknown}. It has {arrow.names}.")
    return to_frame(stored_schema(arrow).empty_table().select(names), dates_as_object=date_as_object)


def read_schema_metadata(dataset_uuid: str, store: StoreLike, table: str = "table") -> SchemaWrapper:
    """The schema of a table from its schema file.

    Raises
    ------
    KeyNotFound
        If there is no such file.
    CorruptDocument
        If it is no schema file.

    Examples
    --------
    >>> import pyarrow as pa
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
    """Write the schema file of a table, columns in the order given; returns its key.

    Raises
    ------
    Unsupported
        If the format cannot carry the type of a column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> store_schema_metadata(pa.schema({"PRODUCT_ID": pa.int64()}), "sales", "hmemory://")
    'sales/table/_common_metadata'
    """
    key = schema_key(dataset_uuid, table)
    open_instrumented(store).put(key, common_metadata_bytes(stored_schema(_arrow(schema))))
    return key
