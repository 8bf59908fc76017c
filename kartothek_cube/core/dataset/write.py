"""Store, update and create a dataset: one commit each.

In order:

- `StagedPartitions`, and what a commit of them adds
- rows of this process
- partitions that many processes stage and one commits
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arrow.pandas import check_names
from kartothek_cube.core.arrow.types import check_shared_columns, ordered, stored_schema
from kartothek_cube.core.commit.change import Change, OnConflict, check_on_conflict
from kartothek_cube.core.commit.commit import commit_change, is_copy
from kartothek_cube.core.commit.dataset_write import DatasetWrite, removed_labels, user_metadata, written
from kartothek_cube.core.dataset.reference import target_of
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper
from kartothek_cube.core.metadata.document import check_version, dataset_schema
from kartothek_cube.core.metadata.naming import is_data_key
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import find_snapshot, load_snapshot
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.core.stores.uploads import uploading
from kartothek_cube.core.write.input_rows import as_items, as_rows, elements_in, is_repeatable
from kartothek_cube.core.write.plan import plan_dataset_update, plan_new
from kartothek_cube.core.write.prepare import (
    Schemas,
    WriteRequest,
    check_final,
    check_partition_columns,
    check_table_name,
)
from kartothek_cube.core.write.stage import Receipt, StagedWrite, receipts_of_files, stage_data, with_index_values
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import (
    Columns,
    DeleteScope,
    IntoItem,
    IntoItems,
    IntoMetadata,
    IntoSchema,
    IntoTxn,
    MetadataMerger,
    StoreLike,
    UserMetadata,
)


class StagedPartitions(Struct, frozen=True):
    """Partitions whose files are written but not committed: a small, picklable value.

    Iterating gives one `StagedPartitions` per partition. A dataset that does not exist yet is
    created with ``partition_on`` and ``index_columns``, for which the rows were prepared.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import write_single_partition
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = [pa.table({"WEEK": [week], "UNITS": [3 * week]}) for week in (1, 2, 3)]
    >>> _ = store_dataframes_as_dataset(store, "sales", sales[:1], partition_on="WEEK")
    >>> staged = write_single_partition(store, "sales", pa.concat_tables(sales[1:]))
    >>> [part.label.split("/")[0] for part in staged]
    ['WEEK=2', 'WEEK=3']
    """

    uuid: str
    receipts: tuple[Receipt, ...]
    partition_on: tuple[str, ...] = ()
    index_columns: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """Labels of the partitions, in order."""
        return list(dict.fromkeys(r.label for r in self.receipts))

    @property
    def label(self) -> str:
        """Label of the only partition; `AttributeError` if there are several."""
        (label, *others) = self.labels or [""]
        if others or not label:
            raise AttributeError(f"These are {len(self.labels)} partitions of dataset {self.uuid!r}; look at `labels`.")
        return label

    @property
    def files(self) -> dict[str, str]:
        """Table → key of the file of the only partition."""
        return {r.table: r.key for r in self.receipts if r.label == self.label}

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[StagedPartitions]:
        by_label: dict[str, list[Receipt]] = {}
        for receipt in self.receipts:
            by_label.setdefault(receipt.label, []).append(receipt)
        return (replace(self, receipts=tuple(receipts)) for receipts in by_label.values())

    def __repr__(self) -> str:
        rows = sum(r.rows for r in self.receipts)
        return f"StagedPartitions(uuid={self.uuid!r}, partitions={len(self)}, rows={rows:,})"


def columns_of_new_dataset(items: Sequence[StagedPartitions]) -> tuple[list[str], list[str]]:
    """Partition keys, and index columns."""
    keys = {item.partition_on for item in items}
    if len(keys) > 1:
        raise InvalidInput(
            f"Receipts of dataset {items[0].uuid!r} have different partition columns: {sorted(map(list, keys))}. "
            "Nothing was committed."
        )
    return list(next(iter(keys), ())), sorted({column for item in items for column in item.index_columns})


def uncommitted(write: DatasetWrite, items: Sequence[StagedPartitions]) -> list[StagedPartitions]:
    """Drop receipts of files that the dataset has and keeps."""
    base = write.base
    if base is None or base.document.partitions is None:
        return list(items)
    present = base.partitions.labels
    staged_labels = pa.array([label for item in items for label in item.labels], type=pa.string())
    # A commit may remove a partition by its scope and add it again. Its repetition must do the
    # same: partitions in the scope count as new.
    stays = pc.invert(pc.is_in(present, value_set=removed_labels(write.store, base, write.scope)))
    mask = pc.and_(stays, pc.is_in(present, value_set=staged_labels))
    labels = present.filter(mask).to_pylist()
    files = {
        (table, label): key
        for table, keys in base.partitions.files.items()
        for label, key in zip(labels, keys.filter(mask).to_pylist(), strict=True)
    }

    def is_new(receipt: Receipt) -> bool:
        key = files.get((receipt.table, receipt.label))
        # The commit copies files that garbage collection is about to take: same rows, another key.
        return key is None or not (key == receipt.key or is_copy(key, receipt.key))

    left = [replace(item, receipts=tuple(filter(is_new, item.receipts))) for item in items]
    return [item for item in left if item.receipts]


def flatten(items: object) -> Iterator[object]:
    """Staged partitions and other items out of nested lists."""
    for item in [items] if isinstance(items, StagedPartitions) else as_items(items):
        # A list of tuples is one item: [(table, rows), ...].
        if isinstance(item, list) and not (item and isinstance(item[0], tuple)):
            yield from flatten(item)
        elif item is not None:
            yield item


def merge_staged(store: Store, request: WriteRequest, items: Sequence[object]) -> StagedWrite:
    """One write out of staged partitions and of files that are stored under the keys of labels."""

    def receipts_of(item: object) -> Sequence[Receipt]:
        if isinstance(item, StagedPartitions):
            return item.receipts
        elements = elements_in(item, request.uuid)
        return [receipt for element in elements for receipt in receipts_of_files(store, request, element)]

    distinct: dict[tuple[str, str], Receipt] = {}
    for receipt in chain.from_iterable(map_in_threads(receipts_of, items)):
        # The same file twice is one partition; two files of one label contradict each other.
        if distinct.setdefault((receipt.label, receipt.table), receipt).key != receipt.key:
            raise InvalidInput(
                f"The labels {[receipt.label]} are duplicated. Nothing was committed to dataset {request.uuid!r}."
            )
    receipts = tuple(
        map_in_threads(lambda receipt: with_index_values(store, request, receipt), list(distinct.values()))
    )
    if request.base is None and not receipts:
        raise InvalidInput(
            f"Cannot store empty datasets: {request.uuid!r} does not exist, "
            "and there are no partitions to make it from."
        )
    by_label: dict[str, dict[str, pa.Schema]] = {}
    for receipt in receipts:
        by_label.setdefault(receipt.label, {})[receipt.table] = receipt.schema
    # Partition by partition: the tables of one partition must agree on shared columns.
    schemas = Schemas(request)
    for tables in by_label.values():
        schemas.add(tables)
    check_final(request, schemas.tables)
    return StagedWrite(request, receipts, schemas.tables, len(items))


# --- rows of this process -------------------------------------------------------------------------


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
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "DE", "FR"], "UNITS": [3, 4, 5]})
    >>> dataset = store_dataframes_as_dataset(store, "sales", [sales], partition_on="COUNTRY_CODE")
    >>> sorted(label.split("/")[0] for label in dataset.partitions)
    ['COUNTRY_CODE=DE', 'COUNTRY_CODE=FR']
    """
    with operation("store_dataframes_as_dataset", options):
        check_version(metadata_version)
        target = target_of(store, dataset_uuid, generate=True)
        with uploading(target.store) as opened:
            write = DatasetWrite.begin(opened, target.uuid, metadata, None, on_conflict, creates=True)
            columns = partition_on, secondary_indices
            request = plan_new(target.uuid, write.base, *columns, df_serializer, overwrite, metadata_storage_format)
            staged = stage_data(opened, request, dfs)
            if not staged.items:
                raise InvalidInput(
                    "Cannot store empty datasets, partition_list must not be empty if in store mode: "
                    f"there are no rows for {target.uuid!r}."
                )
            return target.committed(write.commit(staged))


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
    >>> from kartothek_cube import open_store
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
    >>> from kartothek_cube.api.dataset import read_table
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube import open_store
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

        def attempt(opened: Store, assumes: bool) -> Snapshot:
            given = metadata, metadata_merger, on_conflict
            write = DatasetWrite.begin(opened, target.uuid, *given, delete_scope=delete_scope, assumes=assumes)
            request = plan_dataset_update(
                target.uuid, write.base, partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns
            )
            staged = stage_data(opened, request, df_list)
            if write.base is None and not staged.schemas:
                raise InvalidInput(
                    f"Cannot store empty datasets: {target.uuid!r} does not exist, "
                    "and there are no rows to make it from."
                )
            return write.commit(staged)

        read_once = (metadata_merger, partition_on, secondary_indices, sort_partitions_by, delete_scope)
        may_repeat = is_repeatable(df_list) and not callable(metadata)
        may_repeat = may_repeat and all(each is None or isinstance(each, (str, list, tuple)) for each in read_once)
        return target.committed(written(target.store, attempt, may_repeat=may_repeat))


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
    >>> from kartothek_cube import open_store
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
    >>> from kartothek_cube.api.dataset import read_table
    >>> from kartothek_cube import open_store
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


# --- partitions that many processes stage and one commits -----------------------------------------


def stage_partitions(
    data: IntoItems,
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    partition_on: Columns = None,
    secondary_indices: Columns = None,
    df_serializer: FileFormat | None = None,
    sort_partitions_by: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    options: Overrides | None = None,
) -> StagedPartitions:
    """Write only the data files of some rows: no document, no schema, no index.

    Many processes can stage at the same time; `commit_receipts` in one process makes the files
    visible. Garbage collection spares staged files for its grace period. See the page
    *Many writers*.

    Parameters
    ----------
    data : rows or list of rows
        As ``dfs`` in `store_dataframes_as_dataset`.
    store, dataset_uuid, factory
        The dataset. If it does not exist yet, all writers must pass the same ``partition_on`` and
        ``secondary_indices``.
    partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns
        As in `update_dataset_from_dataframes`.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    StagedPartitions
        The receipts: picklable, with the keys of the files and their index values, without the
        store.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If the rows do not fit the present dataset.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> sales = pa.table({"WEEK": [1, 2], "UNITS": [3, 4]})
    >>> stage_partitions(sales, open_store("hmemory://"), "sales", partition_on="WEEK")
    StagedPartitions(uuid='sales', partitions=2, rows=2)
    """
    with operation("stage_partitions", options):
        target = target_of(store, dataset_uuid, factory)
        base = find_snapshot(target.store, target.uuid)
        request = plan_dataset_update(
            target.uuid, base, partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns
        )
        return _stage(target.store, request, data)


def _stage(store: Store, request: WriteRequest, data: object) -> StagedPartitions:
    staged = stage_data(store, request, data)
    return StagedPartitions(request.uuid, staged.receipts, request.partition_on, staged.request.index_columns)


def commit_receipts(
    receipts: StagedPartitions | Iterable[StagedPartitions],
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    metadata_merger: MetadataMerger | None = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Commit what `stage_partitions` wrote, in one commit that reads and writes no data file.

    The dataset is created if needed. Receipts that were committed before are skipped, so the call
    can be repeated if its answer was lost: no row is added twice, and without other changes there
    is no commit.

    Parameters
    ----------
    receipts : StagedPartitions or list of StagedPartitions
        The results of the writers. If a task ran twice, pass the receipts of one run; the files of
        the other run are garbage.
    store, dataset_uuid, factory
        The dataset.
    delete_scope, metadata, metadata_merger, add_columns, on_conflict
        As in `update_dataset_from_dataframes`.
    txn : tuple of str and int, optional
        ``(application id, number)``: the commit is skipped if the dataset has a commit of this
        application with this number or a later one. A repeated call may then stage its rows again;
        they are committed once. See the page *Exactly once*.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed. ``commit`` is None if there was nothing to commit;
        ``commit.skipped`` is True if ``txn`` had been committed.

    Raises
    ------
    InvalidInput, InvalidType
        If there are no rows to create a dataset from, or receipts belong to another dataset,
        contradict each other or do not fit the dataset.
    CommitConflict
        As in `update_dataset_from_dataframes`.
    StagedFilesLost
        If garbage collection has removed the staged files.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> weeks = [pa.table({"WEEK": [week], "UNITS": [10 * week]}) for week in (1, 2)]
    >>> receipts = [stage_partitions(rows, store, "sales", partition_on="WEEK") for rows in weeks]
    >>> len(commit_receipts(receipts, store, "sales").partitions)
    2
    >>> commit_receipts(receipts, store, "sales").commit is None
    True
    >>> for _ in range(2):
    ...     staged = stage_partitions(weeks[0], store, "sales")
    ...     print(commit_receipts(staged, store, "sales", txn=("weekly", 3)).commit.skipped)
    False
    True
    """
    with operation("commit_receipts", options):
        target = target_of(store, dataset_uuid, factory)
        items = list(flatten(receipts))
        staged = [item for item in items if isinstance(item, StagedPartitions)]
        if len(staged) < len(items):
            wrong = next(item for item in items if not isinstance(item, StagedPartitions))
            raise InvalidType(f"Receipts are what stage_partitions returns, not {type(wrong).__name__}.")
        staged = [item for item in staged if item.receipts]
        write = DatasetWrite.begin(
            target.store, target.uuid, metadata, metadata_merger, on_conflict, delete_scope=delete_scope, txn=txn
        )
        # Before any check of the rows: a repeated call must succeed even if the schema has changed.
        if write.skipped is not None:
            return DatasetMetadata.of(write.skipped)
        # An existing dataset has its own partition keys and index columns.
        columns = columns_of_new_dataset(staged) if write.base is None else ([], [])
        request = plan_dataset_update(target.uuid, write.base, *columns, add_columns=add_columns)
        new = uncommitted(write, staged)
        if write.base is not None and not (new or write.scope or metadata or metadata_merger or write.txn):
            # Nothing to commit: the result of an earlier commit is not that of this call.
            return DatasetMetadata.of(replace(write.base, result=None))
        return target.committed(write.commit(merge_staged(target.store, request, new)))


def write_single_partition(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    data: IntoItems = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    overwrite: bool = False,
    metadata_merger: MetadataMerger | None = None,
    metadata_version: int = 4,
    partition_on: Columns = None,
    factory: DatasetFactory | None = None,
    secondary_indices: Columns = None,
    *,
    options: Overrides | None = None,
) -> StagedPartitions:
    """Write only the data files of one item of rows, to an existing dataset.

    Many processes can write at the same time; `commit_dataset` makes the partitions visible. In a
    dataset whose document lists no partitions (`create_empty_dataset_header`) they are visible at
    once. See the page *Many writers*.

    Parameters
    ----------
    store, dataset_uuid, factory
        The dataset.
    data
        One item, as in `store_dataframes_as_dataset`. Rows are checked against the dataset's schema
        before anything is written.
    partition_on, secondary_indices
        As in `update_dataset_from_dataframes`. The result has the values for all indices of the
        dataset.
    df_serializer
        As in `store_dataframes_as_dataset`.
    metadata, overwrite, metadata_merger
        Accepted from kartothek and without effect.
    metadata_version : int
        Only 4.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    StagedPartitions
        For `commit_dataset`.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidType
        If ``data`` is None.
    InvalidInput
        If the rows do not fit the dataset.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import create_empty_dataset_header
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> schema = pa.schema([("SALES_DATE", pa.string()), ("UNITS", pa.int64())])
    >>> _ = create_empty_dataset_header(store, "sales", {"table": schema}, "SALES_DATE")
    >>> sales = pa.table({"SALES_DATE": ["2024-05-01"], "UNITS": [3]})
    >>> staged = write_single_partition(store, "sales", sales)
    >>> staged
    StagedPartitions(uuid='sales', partitions=1, rows=1)
    >>> len(commit_dataset(store, "sales", new_partitions=[staged]).partitions)
    1
    """
    del metadata, overwrite, metadata_merger  # kartothek's signature
    with operation("write_single_partition", options):
        check_version(metadata_version)
        if data is None:
            raise InvalidType("The parameter `data` is not optional: give the rows of the partition.")
        target = target_of(store, dataset_uuid, factory)
        base = load_snapshot(target.store, target.uuid)
        request = plan_dataset_update(target.uuid, base, partition_on, secondary_indices, df_serializer)
        return _stage(target.store, request, [data])


def commit_dataset(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    new_partitions: IntoItems = None,
    output_dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    factory: DatasetFactory | None = None,
    secondary_indices: Columns = None,
    *,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Commit stored partitions, remove others, set metadata: one commit without data files.

    See the page *Many writers*.

    Parameters
    ----------
    store, dataset_uuid, factory
        The dataset; it is created if needed.
    new_partitions : list, optional
        Results of `write_single_partition`, or ``{"label": ..., "data": {table: rows or None}}``
        for files that are stored under the key of their label. Missing index values are read from
        the file.
    delete_scope, metadata, metadata_merger, partition_on, secondary_indices, on_conflict
        As in `update_dataset_from_dataframes`.
    output_dataset_uuid, df_serializer
        Accepted from kartothek and without effect.
    default_metadata_version : int
        Only 4.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed.

    Raises
    ------
    InvalidInput
        If there is nothing to commit, or a partition belongs to another dataset or does not fit
        the schema.
    KeyNotFound
        If the file of a partition does not exist.
    CommitConflict
        As in `update_dataset_from_dataframes`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = [pa.table({"WEEK": [week], "UNITS": [week]}) for week in (1, 2, 3)]
    >>> _ = store_dataframes_as_dataset(store, "sales", sales[:1], partition_on="WEEK")
    >>> staged = [write_single_partition(store, "sales", rows) for rows in sales[1:]]
    >>> len(commit_dataset(store, "sales", staged, delete_scope=[{"WEEK": 1}]).partitions)
    2
    """
    del output_dataset_uuid, df_serializer  # kartothek's signature
    with operation("commit_dataset", options):
        check_version(default_metadata_version)
        target = target_of(store, dataset_uuid, factory)
        items = [] if new_partitions is None else list(flatten(new_partitions))
        if not items and not delete_scope and not metadata and metadata_merger is None:
            raise InvalidInput(
                "Need to provide either new data, new metadata or a delete scope. None of it was provided."
            )
        write = DatasetWrite.begin(
            target.store, target.uuid, metadata, metadata_merger, on_conflict, delete_scope=delete_scope
        )
        request = plan_dataset_update(target.uuid, write.base, partition_on, secondary_indices)
        return target.committed(write.commit(merge_staged(target.store, request, items)))
