"""Store a dataset, update a dataset, create one without rows: one commit each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from kartothek_cube.core.arrow.pandas import check_names
from kartothek_cube.core.arrow.types import check_shared_columns, ordered, stored_schema
from kartothek_cube.core.commit.change import Change, OnConflict, check_on_conflict
from kartothek_cube.core.commit.commit import check_store_can_commit, commit_change
from kartothek_cube.core.commit.dataset_write import (
    CommitOptions,
    commit_staged,
    metadata_arguments,
    stage_data,
    update_options,
    user_metadata,
)
from kartothek_cube.core.dataset.reference import target_of
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper
from kartothek_cube.core.metadata.document import check_version
from kartothek_cube.core.metadata.naming import is_data_key
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.write.input_rows import as_rows
from kartothek_cube.core.write.plan import plan_dataset_update, plan_new
from kartothek_cube.core.write.prepare import WriteRequest, check_final, check_partition_columns, check_table_name
from kartothek_cube.core.write.stage import dataset_schema
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import (
    Columns,
    DeleteScope,
    IntoItem,
    IntoItems,
    IntoMetadata,
    IntoSchema,
    MetadataMerger,
    StoreLike,
    UserMetadata,
)

__all__ = [
    "create_empty_dataset_header",
    "store_dataframes_as_dataset",
    "store_dataframes_as_dataset__iter",
    "update_dataset_from_dataframes",
    "update_dataset_from_dataframes__iter",
]


def store_dataframes_as_dataset(
    store: StoreLike,
    dataset_uuid: str | None,
    dfs: IntoItems,
    metadata: IntoMetadata = None,
    partition_on: Columns = None,
    df_serializer: FileFormat | None = None,
    overwrite: bool = False,
    secondary_indices: Columns = None,
    metadata_storage_format: str = "json",
    metadata_version: int = 4,
    *,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Store rows as a new dataset.

    Rows in memory are checked completely before the first file is written. The dataset becomes
    visible when all files are stored. See the page *Writing datasets*.

    Parameters
    ----------
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    dataset_uuid : str, optional
        Name of the dataset: ASCII letters, digits, ``+``, ``-``, ``_``. None: a random name.
    dfs : iterable of rows
        Each item becomes one partition; with ``partition_on``, one per combination of its values.
        An item is a pandas frame; an object with ``__arrow_c_stream__`` (pyarrow, Polars, DuckDB),
        where a stream is cut into blocks that fit into memory; a dict table → rows;
        ``{"label": ..., "data": {table: rows}}``; a list of items; or None.
    metadata : dict or callable, optional
        User metadata as JSON values. A callable is called once, after all rows are stored.
    partition_on : str or list of str, optional
        Partition columns: their values become part of the file paths, in this order.
    df_serializer : ParquetSerializer or CsvSerializer, optional
        Format of the data files.
    overwrite : bool, default False
        Replace an existing dataset: partitions, schema, indices and metadata. Its files become
        garbage.
    secondary_indices : str or list of str, optional
        Columns that get an inverted index: value → partitions.
    metadata_storage_format : {"json", "msgpack"}
        Encoding of the document; only `convert_metadata_format` changes it later.
    metadata_version : int
        Version of the format; only 4.
    on_conflict : {"raise", "reapply"}
        What to do if another writer changed the dataset to be overwritten after this call began.
        ``"raise"``: `CommitConflict`. ``"reapply"``: the dataset is replaced anyway (last writer
        wins), and the result has ``commit.reapplied``. See the page *Many writers*.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed.

    Raises
    ------
    AlreadyExists
        If the dataset exists and ``overwrite`` is False.
    InvalidInput, InvalidType, Unsupported
        If an argument or a column is not supported; the message names it. `InvalidRequest` for
        an index on a partition column or on a column that some rows lack.
    CommitConflict
        If another writer created the dataset during the call, or added or removed partitions of
        the dataset to be overwritten.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "DE", "FR"], "UNITS": [3, 4, 5]})
    >>> dataset = store_dataframes_as_dataset(store, "sales", [sales], partition_on="COUNTRY_CODE")
    >>> sorted(label.split("/")[0] for label in dataset.partitions)
    ['COUNTRY_CODE=DE', 'COUNTRY_CODE=FR']
    """
    with operation("store_dataframes_as_dataset", options):
        check_version(metadata_version)
        rules = CommitOptions(on_conflict=check_on_conflict(on_conflict))
        target = target_of(store, dataset_uuid, generate=True)
        # The state at the begin of the call: later commits of others are conflicts.
        base = find_snapshot(target.store, target.uuid)
        columns = partition_on, secondary_indices
        request = plan_new(target.uuid, base, *columns, df_serializer, overwrite, metadata_storage_format)
        arguments = metadata_arguments(metadata, None, target.uuid)
        staged = stage_data(target.store, request, dfs)
        if not staged.items:
            raise InvalidInput(
                "Cannot store empty datasets, partition_list must not be empty if in store mode: "
                f"there are no rows for {target.uuid!r}."
            )
        return target.committed(commit_staged(target.store, staged, arguments, rules))


def store_dataframes_as_dataset__iter(
    df_generator: Iterable[IntoItem],
    store: StoreLike,
    dataset_uuid: str | None = None,
    metadata: IntoMetadata = None,
    partition_on: Columns = None,
    df_serializer: FileFormat | None = None,
    overwrite: bool = False,
    metadata_storage_format: str = "json",
    metadata_version: int = 4,
    secondary_indices: Columns = None,
    *,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Store rows from a generator: `store_dataframes_as_dataset` with another argument order.

    Items of ``df_generator`` are checked and stored one after the other, as many at a time as fit
    into ``options(bytes_in_flight=...)``. If the generator or a check fails, no dataset appears
    and the written files are garbage.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.core.stores.open import open_store
    >>> months = (pd.DataFrame({"MONTH": [month], "UNITS": [month * 10]}) for month in range(1, 4))
    >>> dataset = store_dataframes_as_dataset__iter(months, open_store("hmemory://"), "monthly")
    >>> len(dataset.partitions)
    3
    """
    # Positional, in the order of the other verb.
    rows = dataset_uuid, df_generator, metadata, partition_on, df_serializer, overwrite
    form = secondary_indices, metadata_storage_format, metadata_version
    with operation("store_dataframes_as_dataset__iter", options):
        return store_dataframes_as_dataset(store, *rows, *form, on_conflict=on_conflict)


def update_dataset_from_dataframes(
    df_list: IntoItems,
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    central_partition_metadata: bool = True,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    load_dynamic_metadata: bool = True,
    sort_partitions_by: Columns = None,
    secondary_indices: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Add partitions to a dataset and remove others, in one commit; create the dataset if needed.

    Rows are never changed in place: to replace partitions, name them in ``delete_scope`` and give
    their new rows. See the page *Updating datasets*.

    Parameters
    ----------
    df_list : rows, list of rows, or None
        As ``dfs`` in `store_dataframes_as_dataset`. With an empty list or None, only metadata
        change or partitions are removed. An item whose label exists replaces that partition.
    store, dataset_uuid, factory
        The dataset: ``store`` and ``dataset_uuid``, or a `DatasetFactory`.
    delete_scope : list of dict, optional
        ``[{column: value, ...}, ...]``: each dict removes the whole partitions that contain all of
        its values. Columns must be partition keys or have a secondary index; other columns and
        empty dicts are errors.
    metadata : dict or callable, optional
        User metadata to set, key by key.
    metadata_merger : callable, optional
        Gets a list of dicts, the present metadata first, and returns the new metadata. Missing keys
        are removed.
    partition_on : str or list of str, optional
        For a new dataset. An existing dataset accepts only its own partition keys.
    sort_partitions_by : str or list of str, optional
        Sort the rows of each item by these columns, stably, nulls last.
    secondary_indices : str or list of str, optional
        For a new dataset, or one without partitions. Existing indices are always maintained.
    df_serializer
        As in `store_dataframes_as_dataset`.
    central_partition_metadata, default_metadata_version, load_dynamic_metadata
        Accepted from kartothek and without effect; the version must be 4.
    add_columns : bool, default False
        Add columns that the dataset lacks to its schema; older partitions read as null there. By
        default such columns are an error.
    on_conflict : {"raise", "reapply"}
        What to do if another writer changed what this call removes or replaces, after the call
        began. ``"raise"``: `CommitConflict`. ``"reapply"``: the partitions now in the scope are
        removed anyway (last writer wins), and the result has ``commit.reapplied``. See the page
        *Many writers*.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If an argument, a column or a scope does not fit the dataset. Nothing becomes visible, and
        for rows in memory nothing is written.
    CommitConflict
        If another writer changed what this call removes or replaces, after the call began.
        Concurrent appends are no conflict.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.core.dataset.read import read_table
    >>> from kartothek_cube.core.dataset.write import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 5]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on="COUNTRY_CODE")
    >>> corrected = pd.DataFrame({"COUNTRY_CODE": ["DE"], "UNITS": [4]})
    >>> scope = [{"COUNTRY_CODE": "DE"}]
    >>> _ = update_dataset_from_dataframes([corrected], store, "sales", delete_scope=scope)
    >>> read_table("sales", store)
      COUNTRY_CODE  UNITS
    0           FR      5
    1           DE      4
    """
    del central_partition_metadata, load_dynamic_metadata  # kartothek's signature
    with operation("update_dataset_from_dataframes", options):
        check_version(default_metadata_version)
        target = target_of(store, dataset_uuid, factory)
        # First: a store that cannot commit would keep the files as garbage.
        check_store_can_commit(target.store)
        base = find_snapshot(target.store, target.uuid)
        request = plan_dataset_update(
            target.uuid, base, partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns
        )
        rules = update_options(delete_scope, base, on_conflict)
        arguments = metadata_arguments(metadata, metadata_merger, target.uuid)
        staged = stage_data(target.store, request, df_list)
        if base is None and not staged.schemas:
            raise InvalidInput(
                f"Cannot store empty datasets: {target.uuid!r} does not exist, and there are no rows to make it from."
            )
        return target.committed(commit_staged(target.store, staged, arguments, rules))


def update_dataset_from_dataframes__iter(
    df_generator: Iterable[IntoItem],
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    central_partition_metadata: bool = True,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    load_dynamic_metadata: bool = True,
    sort_partitions_by: Columns = None,
    secondary_indices: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Update a dataset from a generator of rows, as `update_dataset_from_dataframes` does.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.stores.open import open_store
    >>> days = (pa.table({"SALES_DATE": [f"2024-05-0{day}"], "UNITS": [day]}) for day in (1, 2))
    >>> dataset = update_dataset_from_dataframes__iter(days, open_store("hmemory://"), "daily")
    >>> len(dataset.partitions)
    2
    """
    # Positional, in the order of the other verb.
    change = store, dataset_uuid, delete_scope, metadata, df_serializer, metadata_merger
    unused = central_partition_metadata, default_metadata_version
    columns = partition_on, load_dynamic_metadata, sort_partitions_by, secondary_indices
    args = *change, *unused, *columns, factory
    with operation("update_dataset_from_dataframes__iter", options):
        return update_dataset_from_dataframes(df_generator, *args, add_columns=add_columns, on_conflict=on_conflict)


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
    """Create a dataset that has a schema and no rows.

    Its document lists no partitions: until the first commit, every data file under
    ``<uuid>/<table>/`` counts as a partition, so the files of `write_single_partition` are visible
    at once. The document lists an empty set of partitions if ``secondary_indices`` are given (an
    index cannot know uncommitted files), if a dataset is replaced, or if a failed write left files
    (old files would become visible). See the page *The format*.

    Parameters
    ----------
    store, dataset_uuid, partition_on, overwrite, metadata_storage_format, metadata_version, options
        As in `store_dataframes_as_dataset`.
    metadata : dict, optional
        User metadata as JSON values.
    table_meta : dict
        Table → schema: a `pyarrow.Schema`, a `SchemaWrapper`, or rows that have the types. It is
        not changed.
    secondary_indices : str or list of str, optional
        Columns that get an index, which later writes maintain.
    on_conflict : {"raise", "reapply"}
        As in `store_dataframes_as_dataset`.

    Returns
    -------
    DatasetMetadata
        The dataset. ``explicit_partitions`` is False if the document lists no partitions.

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
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> schema = pa.schema([("SALES_DATE", pa.date32()), ("UNITS", pa.int64())])
    >>> create_empty_dataset_header(store, "sales", {"table": schema}).explicit_partitions
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
        if not isinstance(table_meta, Mapping) or not table_meta:  # type: ignore[redundant-expr]
            raise InvalidType(f"table_meta of dataset {request.uuid!r} is a dict table → schema, not {table_meta!r}.")
        schemas = {table: _stored_schema(table, given, request) for table, given in table_meta.items()}
        check_shared_columns(schemas, request.uuid)
        check_final(request, schemas)
        user_values = user_metadata(metadata, request.uuid)
        # Without a list in the document, all files count as partitions. Files of a replaced
        # dataset or of a failed write must not.
        explicit = (
            bool(request.index_columns)
            or request.replace
            or any(map(is_data_key, target.store.list(f"{target.uuid}/", recursive=True).keys))
        )
        change = Change(
            request.uuid,
            (),
            schemas,
            request.partition_on,
            request.index_columns,
            metadata=user_values,
            replace=request.replace,
            explicit=explicit,
            msgpack=request.msgpack,
            on_conflict=rule,
            records=request.records(schemas),
        )
        return target.committed(commit_change(target.store, change, base))


def _stored_schema(table: str, given: IntoSchema, request: WriteRequest) -> pa.Schema:
    check_table_name(table, request.uuid)
    given = given.internal() if isinstance(given, SchemaWrapper) else given
    if isinstance(given, pa.Schema):
        # Schemas that pandas made have a field for the row labels, which are no column.
        fields = [f for f in given if not f.name.startswith("__index_level_")]
        check_names([f.name for f in fields], request.uuid)
        schema = stored_schema(pa.schema(fields), f" of dataset {request.uuid!r}")
    else:
        schema = as_rows(given, request.uuid).schema
    check_partition_columns(request, table, schema)
    return ordered(dataset_schema(schema, request.partition_on), request.partition_on)
