"""Datasets that have a schema and no rows yet."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from kartothek_cube.core.change import Change, OnConflict, check_on_conflict
from kartothek_cube.core.commit import check_store_can_commit, commit
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.compat.schema_wrapper import SchemaWrapper
from kartothek_cube.core.dataset.arguments import check_version, target_of
from kartothek_cube.core.dataset.plan_write import plan_new
from kartothek_cube.core.dataset.prepare import WriteRequest, check_final, check_partition_columns
from kartothek_cube.core.dataset.run import user_metadata
from kartothek_cube.core.frames import check_names
from kartothek_cube.core.input_rows import as_rows
from kartothek_cube.core.layout import check_table_name
from kartothek_cube.core.naming import is_data_key
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.schema import check_shared_columns, ordered, stored_schema
from kartothek_cube.core.snapshots import find_snapshot
from kartothek_cube.core.stage import dataset_schema
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import InvalidType
from kartothek_cube.typing import Columns, IntoSchema, StoreLike, UserMetadata

__all__ = ["create_empty_dataset_header"]


def create_empty_dataset_header(
    store: StoreLike,
    dataset_uuid: str,
    table_meta: Mapping[str, IntoSchema],
    partition_on: Columns = None,
    metadata: UserMetadata | None = None,
    overwrite: bool = False,
    metadata_storage_format: str = "json",
    metadata_version: int = 4,
    *,
    secondary_indices: Columns = None,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Make a dataset that has a schema and no rows.

    Its document lists no partitions: until the first commit every data file under ``<uuid>/<table>/`` counts as one, so that several writers can use
    `write_single_partition`, whose files are visible at once. With ``secondary_indices`` the document lists its (no) partitions, as an index cannot
    know files that nobody committed; so it does where it replaces a dataset, or where a write that failed left files: they would come back otherwise.

    Parameters
    ----------
    store, dataset_uuid, partition_on, metadata, overwrite, metadata_storage_format, metadata_version, options
        As in `store_dataframes_as_dataset`; ``metadata`` is a dict.
    table_meta : dict
        Table → its schema: a `pyarrow.Schema`, a `SchemaWrapper`, or rows from which the types are taken. It is not changed.
    secondary_indices : str or list of str, optional
        Columns that get an index, which later writes maintain.
    on_conflict : {"raise", "reapply"}
        As in `store_dataframes_as_dataset`.

    Returns
    -------
    DatasetMetadata
        The dataset; ``explicit_partitions`` is False unless it has indices, or there are files already.

    Raises
    ------
    AlreadyExists
        If the dataset exists and ``overwrite`` is False.
    InvalidInput, InvalidType, Unsupported
        If a schema, a partition column or an index column cannot be used.
    CommitConflict
        As in `store_dataframes_as_dataset`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.dataset.read import read_table
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> schema = pa.schema([("SALES_DATE", pa.date32()), ("UNITS", pa.int64())])
    >>> create_empty_dataset_header(store, "sales", {"table": schema}, partition_on="SALES_DATE").explicit_partitions
    False
    >>> read_table("sales", store).dtypes.to_dict()
    {'SALES_DATE': dtype('<M8[ms]'), 'UNITS': dtype('int64')}
    """
    with operation("create_empty_dataset_header", options):
        check_version(metadata_version)
        rule = check_on_conflict(on_conflict)
        target = target_of(store, dataset_uuid)
        check_store_can_commit(target.store)
        base = find_snapshot(target.store, target.uuid)
        request = plan_new(target.uuid, base, partition_on, secondary_indices, None, overwrite, metadata_storage_format)
        schemas = _schemas(table_meta, request)
        check_final(request, schemas)
        change = Change(
            request.uuid,
            (),
            schemas,
            request.partition_on,
            request.index_columns,
            metadata=user_metadata(metadata, request.uuid),
            replace=request.replace,
            explicit=bool(request.index_columns) or request.replace or any(map(is_data_key, target.store.list(f"{target.uuid}/", recursive=True).keys)),
            msgpack=request.msgpack,
            on_conflict=rule,
        )
        return target.committed(commit(target.store, change, base))


def _schemas(table_meta: object, request: WriteRequest) -> dict[str, pa.Schema]:
    if not isinstance(table_meta, Mapping) or not table_meta:
        raise InvalidType(f"table_meta of dataset {request.uuid!r} is a dict table → schema, not {table_meta!r}.")
    schemas = {table: _schema(table, given, request) for table, given in table_meta.items()}
    check_shared_columns(schemas, request.uuid)
    return schemas


def _schema(table: str, given: object, request: WriteRequest) -> pa.Schema:
    check_table_name(table, request.uuid)
    schema = _columns(given, request.uuid)
    check_partition_columns(request, table, schema)
    return ordered(dataset_schema(schema, request.partition_on), request.partition_on)


def _columns(given: object, uuid: str) -> pa.Schema:
    given = given.internal() if isinstance(given, SchemaWrapper) else given
    if not isinstance(given, pa.Schema):
        return as_rows(given, uuid).schema
    # Row labels of pandas have a field in schemas that it made, but are no column.
    fields = [f for f in given if not f.name.startswith("__index_level_")]
    check_names([f.name for f in fields], uuid)
    return stored_schema(pa.schema(fields), f" of dataset {uuid!r}")
