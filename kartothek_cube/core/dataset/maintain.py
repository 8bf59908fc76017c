"""Statistics, layout, columns, lists, copies, indices, garbage, verification, deletion, compaction.

In order:

- statistics of files that have none
- layout and dropped columns: commits of the document alone
- lists of datasets, statistics of row groups, hashes of rows
- copies and new names
- indices, garbage, conversion, verification, deletion, compaction
- Delta tables, which other engines read in place
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec.structs import replace

from kartothek_cube.core.arguments import as_list, check_flag
from kartothek_cube.core.arrow.bounds import columns_with_bounds, has_bounds
from kartothek_cube.core.arrow.difference import row_hashes, total_hash
from kartothek_cube.core.arrow.keys import Hashes, group_starts, pack_one
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.commit.cube_writes import finish_pending
from kartothek_cube.core.commit.dataset_write import repeat_on_conflict
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.delta.log import PublishedDelta
from kartothek_cube.core.delta.publication import publish_newest, unpublish
from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.io.formats import CODECS, FileFormat
from kartothek_cube.core.io.reader import Clustering, FileRequest, read_rows
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.maintenance.compaction import (
    Selection,
    check_format,
    plan_files,
    run_compactions,
    selected_partitions,
)
from kartothek_cube.core.maintenance.compaction_plan import (
    TARGET_ROWS,
    CompactionReport,
    cell_order,
    check_clustering,
    check_columns,
    check_target_rows,
)
from kartothek_cube.core.maintenance.copy import convert_document, delete_whole_dataset, run_copy, run_rename
from kartothek_cube.core.maintenance.garbage import GarbageReport, collect_garbage
from kartothek_cube.core.maintenance.inspection import VerifyReport, report_of
from kartothek_cube.core.maintenance.verify import verify, verify_rows
from kartothek_cube.core.metadata.naming import JSON_SUFFIX, MSGPACK_SUFFIX, SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot, cube_columns, type_of_column
from kartothek_cube.core.metadata.statistics import FileStatistics, concat_statistics, trusted_file_names
from kartothek_cube.core.runtime.executor import THREADS, map_files
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import FilePlan, ScanTask, checked_columns, labels_of, make_file_plan
from kartothek_cube.core.snapshots.loader import Entries, KeptFiles, built_indices, load_snapshot
from kartothek_cube.core.snapshots.statistics import footer_statistics, load_statistics, row_group_table
from kartothek_cube.core.stores.contract import Store, check_key, check_store_can_commit
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.core.write.layout import DatasetLayout, dropped_columns, layout_of
from kartothek_cube.core.write.plan import column_names
from kartothek_cube.core.write.prepare import check_index_columns
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidRequest, InvalidType, UnknownColumn, Unsupported
from kartothek_cube.typing import AsOf, Columns, Executor, IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd


def build_statistics(
    dataset_uuid: str,
    store: StoreLike,
    columns: Iterable[str] | str | None = None,
    *,
    options: Overrides | None = None,
) -> int:
    """Build statistics of the files that have none, e.g. of those that kartothek wrote.

    Writes of this library keep statistics on their own. Footers are read, and of numbers with NaN
    the values, where the footer leaves out too much. See the page *Statistics*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : store
        URL, `open_store` result, simplekv store, or a function that returns one.
    columns : str or list of str, optional
        The columns whose least and greatest values are kept; files that have statistics without
        them get new ones. Default: the first 64 of numbers, dates, times and texts, for files
        without statistics.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    int
        The number of files that got statistics. Files whose labels a user chose get none, because
        other libraries overwrite them. If a label looks like a hash, i.e. has 32 hexadecimal digits
        that are no random UUID, all labels count as chosen.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidRequest
        If the dataset has no such column, or the column is a partition key.
    Unsupported
        If the type of a column has no order.
    CommitConflict
        If other commits came first more often than ``options(commit_retries=...)``. Nothing was
        changed.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, options
    >>> from kartothek_cube.api.dataset import build_statistics, plan_table_scan
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> weeks = [pd.DataFrame({"WEEK": [w, w + 1], "UNITS": [3, 4]}) for w in (1, 11, 21)]
    >>> _ = store_dataframes_as_dataset(store, "sales", weeks, options=options(statistics=False))
    >>> build_statistics("sales", store)
    3
    >>> plan_table_scan("sales", store, predicates=[[("WEEK", ">", 20)]])
    ScanPlan(dataset='sales', table='table', files=1 of 3)
    """
    with operation("build_statistics", options):
        source = dataset_ref(dataset_uuid, store, None)
        check_store_can_commit(source.store)
        names = None if columns is None else column_names(columns, "columns")
        built = 0

        def build() -> None:
            nonlocal built
            base = load_snapshot(source.store, source.uuid)
            found = _missing_statistics(source.store, base, names)
            built = len(found)
            if built:
                indexed, explicit = tuple(sorted(base.secondary_columns)), base.document.partitions is not None
                keys = base.partition_keys
                change = Change(
                    source.uuid, (), base.schemas, keys, indexed, explicit=explicit, data_change=False, statistics=found
                )
                commit_change(source.store, change, base)

        repeat_on_conflict(build)
        return built


def _missing_statistics(store: Store, base: Snapshot, columns: Sequence[str] | None) -> FileStatistics:
    """Statistics of the files that have none, or none of these columns."""
    found: list[FileStatistics] = []
    known, chosen = load_statistics(store, base, None), _columns_to_build(base, columns)
    for table, files in base.partitions.files.items():
        schema = base.schemas[table]
        # New statistics of a file replace those that it has.
        present = [c for c in dict.fromkeys([*known.columns, *chosen]) if c in schema.names]
        wanted = [c for c in present if has_bounds(schema.field(c).type)]
        names = trusted_file_names(files, base.uuid)
        of_files = known.of_files(names)
        is_missing = of_files.rows.is_null().to_numpy(zero_copy_only=False)
        for column in {*(columns or ())} & {*schema.names}:
            lower = of_files.bounds(column, schema.field(column).type).minimum
            has_values = pc.fill_null(pc.not_equal(of_files.nulls(column), of_files.rows), True)
            unknown = pc.and_(lower.is_null(), has_values)
            is_missing = is_missing | unknown.to_numpy(zero_copy_only=False)
        positions = np.flatnonzero(is_missing & names.is_valid().to_numpy(zero_copy_only=False))
        read = partial(footer_statistics, store, base, schema, wanted)
        found += map_files(read, files.take(pa.array(positions)).to_pylist(), executor=THREADS, store=store)
    return concat_statistics(found)


def _columns_to_build(base: Snapshot, columns: Sequence[str] | None) -> list[str]:
    names = {name for schema in base.schemas.values() for name in schema.names}
    types = {name: type_of_column(base.schemas, name, base.uuid) for name in names.difference(base.partition_keys)}
    if columns is None:
        return columns_with_bounds(pa.schema(types))
    for column in columns:
        if column not in types:
            raise InvalidRequest(
                f"Dataset {base.uuid!r} has no column {column!r} inside its files, which have {sorted(types)}."
            )
        if not has_bounds(types[column]):
            raise Unsupported(
                f"Column {column!r} of dataset {base.uuid!r} has the type {types[column]}, which has no order."
            )
    return [*columns]


# --- layout and dropped columns -------------------------------------------------------------------


def set_layout(
    dataset_uuid: str,
    store: StoreLike,
    *,
    sort_by: Columns = None,
    bucket_by: Columns = None,
    num_buckets: int | None = None,
    target_file_bytes: int | None = None,
    compression: str | None = None,
    row_group_rows: int | None = None,
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Set how later writes arrange the rows of a dataset in files, in a commit without rows.

    Files that are there stay as they are until `compact_dataset` rewrites them. A setting that is
    None stays; an empty one (``[]``, ``0``, ``""``) is removed. See the page *Layout*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    sort_by : str or list of str, optional
        Columns that sort the rows of each file, nulls last. In a dataset of a cube compactions sort
        by them; other writes keep the order of cells.
    bucket_by, num_buckets : optional
        The columns whose hash chooses one of so many files, in shuffled writes of Spark. Columns
        need a number; without columns those that the write hashes by default.
    target_file_bytes : int, optional
        The size in bytes at which files are cut.
    compression : str, optional
        The codec of Parquet files: ``SNAPPY``, ``ZSTD``, ``GZIP``, ``BROTLI``, ``LZ4`` or ``NONE``.
    row_group_rows : int, optional
        Rows of a row group.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset; ``layout`` has the settings.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidInput, InvalidType, InvalidRequest, UnknownColumn, Unsupported
        If a setting cannot be used, or the dataset does not have a column, or not in its files.
    CommitConflict
        If other commits came first more often than ``options(commit_retries=...)``.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import set_layout, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"SALES_DATE": ["2024-05-02", "2024-05-01"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales])
    >>> print(set_layout("sales", store, sort_by="SALES_DATE", compression="ZSTD").layout)
    sorted by SALES_DATE; ZSTD
    """
    with operation("set_layout", options):
        numbers = {"num_buckets": num_buckets, "target_file_bytes": target_file_bytes, "row_group_rows": row_group_rows}
        for name, number in numbers.items():
            if number is not None and (not isinstance(number, int) or isinstance(number, bool)):  # type: ignore[redundant-expr]
                raise InvalidType(f"set_layout: {name} is a number, not {number!r}.")
            if number is not None and number < 0:
                raise InvalidInput(f"set_layout: {name} is a positive number, or 0 to remove it, not {number}.")
        if compression and str(compression).upper() not in CODECS:
            raise InvalidInput(f"set_layout: unknown compression {compression!r}; use one of {', '.join(CODECS)}.")
        columns = {
            name: () if isinstance(given, str) and not given else column_names(given, name)
            for name, given in {"sort_by": sort_by, "bucket_by": bucket_by}.items()
            if given is not None
        }
        codec = {} if compression is None else {"compression": compression.upper() or None}
        if num_buckets == 0:
            columns.setdefault("bucket_by", ())
        given = {**columns, **codec, **{name: number or None for name, number in numbers.items() if number is not None}}

        def change(base: Snapshot) -> Change:
            layout = dataclasses.replace(layout_of(base.document.metadata, base.uuid), **given)  # type: ignore[arg-type]
            _check_layout(layout, base, given)
            return replace(_unchanged(base), records=layout.record())

        return _committed(dataset_uuid, store, change)


def _check_layout(layout: DatasetLayout, base: Snapshot, given: Collection[str]) -> None:
    if layout.sort_by and "sort_by" in given:
        check_columns(Clustering(layout.sort_by), base)
    if layout.bucket_by and layout.num_buckets is None:
        raise InvalidInput(
            f"Dataset {base.uuid!r}: bucket_by={list(layout.bucket_by)} needs num_buckets, the number of files for "
            "each combination of partition values."
        )
    for column in layout.bucket_by:
        data_type = type_of_column(base.schemas, column, base.uuid)
        if pt.is_nested(data_type):
            raise InvalidType(
                f"Column {column!r} of dataset {base.uuid!r} is {data_type}, which cannot be hashed. "
                "Name other columns in bucket_by."
            )


def drop_columns(
    dataset_uuid: str, store: StoreLike, columns: Columns, *, options: Overrides | None = None
) -> DatasetMetadata:
    """Remove columns from the schema of a dataset, in a commit without rows.

    Readers do not see the columns any more, and later rows come without them. Older files keep
    their values until a compaction with ``rewrite=True``. A dropped column can come back, with
    ``add_columns=True``, in a type that holds the old values, too: then rows of such files have
    them again. `undo` brings the columns back while the commit is the newest. See the page
    *Layout*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset; of a cube e.g. ``"sales++seed"``.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    columns : str or list of str
        The columns; with several tables, in all of them.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset without the columns.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    UnknownColumn
        If the dataset does not have a column.
    InvalidRequest
        If a column is a partition key, has a secondary index, is a dimension or partition column of
        the cube, sorts or distributes rows by the layout on record, or if files would have no
        column.
    CommitConflict
        If other commits came first more often than ``options(commit_retries=...)``.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import drop_columns, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "UNITS": [3, 4], "PRICE": [0.5, 1.5]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales])
    >>> drop_columns("sales", store, "PRICE").schema.names
    ['PRODUCT_ID', 'UNITS']
    """
    with operation("drop_columns", options):
        names = column_names(columns, "columns")

        def change(base: Snapshot) -> Change:
            _check_dropped(names, base)
            return replace(_unchanged(base), dropped_columns=frozenset(names))

        return _committed(dataset_uuid, store, change)


def _check_dropped(names: Sequence[str], base: Snapshot) -> None:
    """Raise for columns that the dataset needs or does not have."""
    if not names:
        raise InvalidInput(f"drop_columns: name the columns of dataset {base.uuid!r} that are to be dropped.")
    uuid, present = base.uuid, {name for schema in base.schemas.values() for name in schema.names}
    before = {name for schema in dropped_columns(base.document.metadata, uuid).values() for name in schema.names}
    for column in (c for c in names if c not in present):
        hint = " It was dropped before." if column in before else ""
        raise UnknownColumn(f"Dataset {uuid!r} has no column {column!r}, only {sorted(present)}.{hint}")
    cube, layout = cube_columns(base.document.metadata), layout_of(base.document.metadata, uuid)
    roles = {
        "a partition key: its values are in the paths of the files": base.partition_keys,
        "a dimension or partition column of the cube": () if cube is None else (*cube.dimensions, *cube.partitions),
        "a column with a secondary index; drop the index first": base.secondary_columns,
        "part of the layout on record; change it with set_layout first": (*layout.sort_by, *layout.bucket_by),
    }
    for role, taken in roles.items():
        needed = [c for c in names if c in taken]
        if needed:
            raise InvalidRequest(f"Column {needed[0]!r} of dataset {uuid!r} cannot be dropped: it is {role}.")
    for table, schema in base.schemas.items():
        if {*schema.names} <= {*names, *base.partition_keys}:
            raise InvalidRequest(
                f"Dataset {uuid!r} would have no column left in the files of table {table!r}. To remove the rows, use "
                "delete_rows or delete_dataset."
            )


def _unchanged(base: Snapshot) -> Change:
    """A change that leaves everything as it is, to be completed."""
    indexed, explicit = tuple(sorted(base.secondary_columns)), base.document.partitions is not None
    return Change(base.uuid, (), {}, base.partition_keys, indexed, explicit=explicit, data_change=False)


def _committed(dataset_uuid: str, store: StoreLike, change: Callable[[Snapshot], Change]) -> DatasetMetadata:
    """Commit a change of the newest state, and again after conflicts."""
    source = dataset_ref(dataset_uuid, store, None)
    check_store_can_commit(source.store)

    def attempt() -> DatasetMetadata:
        base = load_snapshot(source.store, source.uuid)
        return source.committed(commit_change(source.store, change(base), base))

    return repeat_on_conflict(attempt)


# --- lists of datasets ----------------------------------------------------------------------------


_HASH = "hash"


def collect_dataset_metadata(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    table_name: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    frac: float = 1.0,
    factory: DatasetFactory | None = None,
    *,
    random_state: int | np.random.Generator | np.random.BitGenerator | np.random.SeedSequence | None = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> pd.DataFrame:
    """Statistics from the footers of the data files: one row per row group.

    Parameters
    ----------
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    dataset_uuid : str
        The dataset.
    table_name : str, default "table"
        The table.
    predicates : list of list of tuple, optional
        Only files that may have matching rows by their partition values and indices. Rows are not
        read.
    frac : float, default 1.0
        Share of the files, above 0 and at most 1. The sample is random and has at least one file.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``.
    random_state : int or numpy.random.Generator, optional
        Seed of the sample.
    as_of : str or datetime, optional
        As in `read_table`.
    options : optional
        Settings for this call, from `options`.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    pandas.DataFrame
        In the order of the document; without files, an empty frame with the same types. Sizes are
        in bytes.

        - ``partition_label``: label of the partition.
        - ``row_group_id``: position of the row group in its file, from 0.
        - ``row_group_compressed_size``, ``row_group_uncompressed_size``: size of the column chunks,
          encoded in the file and decoded.
        - ``number_rows_total``, ``number_row_groups``: of the file.
        - ``serialized_size``: size of the file.
        - ``number_rows_per_row_group``: rows of the row group.

        kartothek returns an uncompressed size as ``row_group_compressed_size``, and the size of the
        footer as ``serialized_size``.

    Raises
    ------
    InvalidInput, InvalidType
        If ``frac`` is out of range, or the predicates do not fit the dataset.
    DatasetNotFound, KeyNotFound
        If the dataset, the table, or a file does not exist.
    Unsupported
        If a file is not in Parquet.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import collect_dataset_metadata, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> collect_dataset_metadata(store, "sales")["number_rows_total"].tolist()
    [2, 1]
    """
    with operation("collect_dataset_metadata", options):
        is_number = isinstance(frac, (int, float, np.number)) and not isinstance(frac, bool)  # type: ignore[redundant-expr]
        if not is_number or not 0 < frac <= 1:
            raise InvalidInput(f"Invalid value for parameter `frac`: {frac!r}. It is a number above 0 and at most 1.")
        source = dataset_ref(dataset_uuid, store, factory, as_of)
        snapshot = source.snapshot()
        plan = make_file_plan(source.store, snapshot, table_name, [], parse_predicates(predicates), keep=source.keep)
        labels = labels_of(plan, snapshot, table_name)
        sample: Sequence[int] = range(len(labels))
        if frac < 1 and labels:
            size = max(1, int(len(labels) * float(frac)))
            sample = sorted(np.random.default_rng(random_state).choice(len(labels), size, replace=False).tolist())
        files = [(labels[i], plan.files[i].as_py()) for i in sample]
        frame: pd.DataFrame = row_group_table(source.store, snapshot.uuid, files, executor).to_pandas()
        return frame.astype({"partition_label": object})  # kartothek's type, not pandas' new text type


# --- hashes ---------------------------------------------------------------------------------------


def hash_dataset(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    subset: Columns = None,
    group_key: Columns = None,
    table: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> pd.Series[int]:
    """A 64-bit hash of the rows of each partition, or of each group of rows.

    Equal rows have equal hashes, independent of order, files, encodings, widths of types and
    versions of libraries; duplicate rows count. So hashes show whether two datasets have the same
    rows, or where they differ. They are not cryptographic. They differ from kartothek's hashes,
    which depend on the version of pandas.

    Parameters
    ----------
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    dataset_uuid : str
        The dataset.
    subset : str or list of str, optional
        Columns to hash, by default all. Their names count, their order does not.
    group_key : str or list of str, optional
        Group rows by these columns.
    table : str, default "table"
        The table.
    predicates : list of list of tuple, optional
        Hash only matching rows.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``.
    as_of : str or datetime, optional
        As in `read_table`.
    options : optional
        Settings for this call, from `options`.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    pandas.Series
        Type ``uint64``. Without ``group_key``: by label, in the order of the document; with
        predicates, without partitions that have no matching row. With ``group_key``: by the sorted
        values of these columns, in a ``MultiIndex`` if there are several; nulls are one group.

    Raises
    ------
    InvalidInput, InvalidType
        If columns or predicates do not fit the dataset.
    DatasetNotFound, KeyNotFound
        If the dataset, the table, or a file does not exist.

    Notes
    -----
    The hash of a group is the sum of the hashes of its rows modulo 2^64.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import hash_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales])
    >>> _ = store_dataframes_as_dataset(store, "copy", [sales[::-1]], partition_on=["COUNTRY_CODE"])
    >>> hashes = hash_dataset(store, "sales", group_key="COUNTRY_CODE")
    >>> hashes.equals(hash_dataset(store, "copy", group_key="COUNTRY_CODE")), list(hashes.index)
    (True, ['DE', 'FR'])
    """
    with operation("hash_dataset", options):
        source = dataset_ref(dataset_uuid, store, factory, as_of)
        snapshot = source.snapshot()
        hashed = None if subset is None else [str(c) for c in as_list(subset, "subset")]
        keys = [str(c) for c in as_list(group_key, "group_key")]
        to_read = None if hashed is None else list(dict.fromkeys([*hashed, *keys]))
        plan = make_file_plan(source.store, snapshot, table, to_read, parse_predicates(predicates), keep=source.keep)
        columns = list(plan.request.columns) if hashed is None else hashed
        if group_key is None:
            return _by_partition(source.store, plan, columns, labels_of(plan, snapshot, table), executor)
        return _by_group(source.store, plan, columns, keys, executor)


def _by_partition(
    store: Store, plan: FilePlan, columns: Sequence[str], labels: Sequence[str], executor: Executor
) -> pd.Series[int]:
    import pandas as pd

    hashed = map_files(partial(_file_hash, store, plan.request, columns), plan.tasks(), executor=executor, heavy=True)
    by_label = {
        label: value
        for label, (value, rows) in zip(labels, hashed, strict=True)
        if rows or plan.request.predicates is None
    }
    index = pd.Index(list(by_label), dtype=object)
    # pandas' stubs take an array of integers for one of floats.
    return cast("pd.Series[int]", pd.Series(np.array(list(by_label.values()), dtype=np.uint64), index=index))


def _file_hash(store: Store, request: FileRequest, columns: Sequence[str], task: ScanTask) -> tuple[np.uint64, int]:
    hashes = row_hashes(read_rows(store, task.key, request, task.constants), columns)
    return total_hash(hashes), len(hashes)


def _by_group(
    store: Store, plan: FilePlan, columns: Sequence[str], keys: Sequence[str], executor: Executor
) -> pd.Series[int]:
    import pandas as pd

    request = plan.request
    fields = [request.schema.field(c) for c in checked_columns(keys, request.schema, request.dataset)]
    nested = [f.name for f in fields if pt.is_nested(f.type)]
    if nested or not fields:
        raise InvalidInput(
            f"The columns {nested} make no groups of dataset {request.dataset!r}; "
            "group_key names columns without lists, at least one."
        )
    schema = pa.schema(fields)
    of_file = partial(_group_hashes, store, request, columns, schema)
    hashed = map_files(of_file, plan.tasks(), executor=executor, heavy=True)
    # Without files the result is empty, in the types of the columns.
    parts = list(hashed) or [_summed(schema.empty_table(), np.zeros(0, dtype=np.uint64))]
    merged = pa.concat_tables(parts).combine_chunks()
    result = _summed(merged.select(range(len(keys))), merged.column(len(keys)).to_numpy())
    frame = to_frame(result.select(range(len(keys))), dates_as_object=True)
    index = pd.Index(frame[keys[0]], name=keys[0]) if len(keys) == 1 else pd.MultiIndex.from_frame(frame)
    return pd.Series(result.column(len(keys)).to_numpy(), index=index)


def _group_hashes(
    store: Store, request: FileRequest, columns: Sequence[str], keys: pa.Schema, task: ScanTask
) -> pa.Table:
    rows = read_rows(store, task.key, request, task.constants)
    columns_of_keys = []
    for key in keys:
        column = rows.column(key.name)
        if pt.is_floating(key.type):
            # One group for NaN and null, and one for 0.0 and -0.0, to which adding 0.0 leads.
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, key.type), pc.add(column, 0.0).cast(key.type))
        columns_of_keys.append(column)
    return _summed(pa.table(columns_of_keys, schema=keys), row_hashes(rows, columns))


def _summed(keys: pa.Table, hashes: Hashes) -> pa.Table:
    """The distinct keys, sorted, and the sum of the hashes of each key as the last column."""
    codes = pack_one(keys, keys.column_names)
    order = np.argsort(codes, kind="stable")
    starts = group_starts(codes[order])
    # Overflow wraps around: the sum modulo 2^64.
    sums = np.add.reduceat(hashes[order], starts) if len(starts) else np.zeros(0, dtype=np.uint64)
    return keys.take(pa.array(order[starts])).append_column(_HASH, pa.array(sums, type=pa.uint64()))


_DOCUMENTS = (JSON_SUFFIX, MSGPACK_SUFFIX)


def list_datasets(store: StoreLike) -> list[str]:
    """Uuids of the datasets in a store, sorted: one listing of the top level, no document is read.

    Datasets of a cube appear as ``<uuid_prefix>++<dataset>``. A dataset exists if and only if its
    document exists, see the page *The format*. It also names datasets that a write to a cube makes
    and has not committed: readers do not see them yet.

    Parameters
    ----------
    store : str, path, store or callable
        The store, in any form that `open_store` takes.

    Returns
    -------
    list of str
        Uuids, e.g. ``["prices", "sales++seed"]``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> sales = pa.table({"PRODUCT_ID": [1], "UNITS": [3]})
    >>> _ = store_dataframes_as_dataset("hfs://listed", "sales", [sales], overwrite=True)
    >>> list_datasets("hfs://listed")
    ['sales']
    """
    keys = (entry.key for entry in open_instrumented(store).list("").entries)
    return sorted({key.removesuffix(end) for key in keys for end in _DOCUMENTS if key.endswith(end)})


# --- copies and new names -------------------------------------------------------------------------


def copy_dataset(
    source_dataset_uuid: str,
    store: StoreLike,
    target_dataset_uuid: str | None = None,
    target_store: StoreLike | None = None,
    *,
    overwrite: bool = False,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> dict[str, DatasetMetadata]:
    """Copy a dataset, under another name or to another store.

    The copy has the state at the begin of the call, without garbage, and becomes visible when all
    files are stored; then it gets the tags, each with its state. It keeps the encoding of the
    document and the metadata with ``creation_time``; its history starts anew. Inside one store the
    store itself copies the files; between two stores they are streamed. See the page *Maintenance*.

    Parameters
    ----------
    source_dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    target_dataset_uuid : str, optional
        Name of the copy; by default the same.
    target_store : str, path, store or callable, optional
        Store of the copy; by default the same.
    overwrite : bool, default False
        Replace an existing target. The target keeps its encoding; its files become garbage.
    options : optional
        Settings for this call, from `options`.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    dict of str to DatasetMetadata
        Key of the document of the copy → the copy.

    Raises
    ------
    InvalidInput
        If source and target are the same, or a name is not valid.
    DatasetNotFound
        If the dataset does not exist.
    AlreadyExists
        If the target exists and ``overwrite`` is False.
    KeyNotFound
        If a file vanished during the call. The copy does not exist then.
    CommitConflict
        If another writer changed the target during the call.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import copy_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"PRODUCT_ID": [1, 2]})])
    >>> list(copy_dataset("sales", store, "sales_2024"))
    ['sales_2024.by-dataset-metadata.json']
    """
    with operation("copy_dataset", options):
        replaces = check_flag(overwrite, "overwrite")
        source = dataset_ref(source_dataset_uuid, store, None)
        target = source.store if target_store is None else open_instrumented(target_store)
        new_uuid = source.uuid if target_dataset_uuid is None else target_dataset_uuid
        copied = run_copy(source.store, source.uuid, target, new_uuid, overwrite=replaces, executor=executor)
        return {copied.key: DatasetMetadata.of(copied)}


def rename_dataset(
    dataset_uuid: str, store: StoreLike, new_uuid: str, *, options: Overrides | None = None
) -> DatasetMetadata:
    """Rename a dataset: copy it inside its store, then delete the original.

    The original is locked against commits before it is deleted. If the call is interrupted during
    the deletion, call it again. If it is interrupted earlier, both datasets are complete; delete
    the copy before the next attempt. See the page *Maintenance*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    new_uuid : str
        The new name.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset under its new name.

    Raises
    ------
    InvalidInput
        If the new name is not valid, or equals the old name.
    DatasetNotFound
        If the dataset does not exist.
    AlreadyExists
        If a dataset has the new name. Nothing was changed.
    CommitConflict
        If the dataset changed while it was copied. Both exist then: the dataset, and a copy of the
        older state.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import rename_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"PRODUCT_ID": [1, 2]})])
    >>> rename_dataset("sales", store, "sales_2024").uuid
    'sales_2024'
    """
    with operation("rename_dataset", options):
        source = dataset_ref(dataset_uuid, store, None)
        return DatasetMetadata.of(run_rename(source.store, source.uuid, new_uuid))


# --- indices --------------------------------------------------------------------------------------


def build_dataset_indices(
    store: StoreLike | None,
    dataset_uuid: str | None,
    columns: Iterable[str] | str,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> DatasetFactory:
    """Build secondary indices of an existing dataset, reading only the columns to be indexed.

    An existing index on a column is rebuilt; other indices and the metadata stay. See the page
    *Indices*.

    Parameters
    ----------
    store, dataset_uuid, factory
        The dataset: ``store`` and ``dataset_uuid``, or a `DatasetFactory`.
    columns : str or list of str
        The columns.
    options : optional
        Settings for this call, from `options`.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    DatasetFactory
        The dataset with its new indices.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidRequest
        If no table has a column, or the column is a partition key, whose index is the path.
    Unsupported
        If the type of a column cannot be indexed.
    CommitConflict
        If other writers added or removed partitions more often than
        ``options(commit_retries=...)``; each retry reads only new files. Nothing was changed.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"BRAND": ["Acme", "Bolt"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales, sales[1:]])
    >>> factory = build_dataset_indices(store, "sales", "BRAND")
    >>> len(factory.load_index("BRAND").indices["BRAND"].query("Bolt"))
    2
    """
    with operation("build_dataset_indices", options):
        source = dataset_ref(dataset_uuid, store, factory)
        check_store_can_commit(source.store)
        names = column_names(columns, "columns")
        # A retry after a conflict reads only the files that are not in here yet.
        entries: Entries = {}

        def build() -> None:
            base = load_snapshot(source.store, source.uuid)
            present = {name for schema in base.schemas.values() for name in schema.names}
            missing = [c for c in names if c not in present]
            if missing:
                raise InvalidRequest(
                    f"Column {missing[0]!r} could not be found in the partitions of dataset {base.uuid!r}, "
                    f"which has {sorted(present)}."
                )
            for key in check_index_columns(base.schemas, names, base.partition_keys, base.uuid):
                check_key(key)
            built = built_indices(source.store, base, names, entries, executor)
            index_columns = tuple(sorted(base.secondary_columns | set(names)))
            change = Change(source.uuid, (), base.schemas, base.partition_keys, index_columns, built=built)
            source.committed(commit_change(source.store, change, base))

        repeat_on_conflict(build)
        return source.factory or DatasetFactory(source.uuid, source.store)


@overload
def garbage_collect_dataset(
    dataset_uuid: str, store: StoreLike, *, dry_run: bool = False, options: Overrides | None = None
) -> GarbageReport: ...


@overload
def garbage_collect_dataset(
    *, factory: DatasetFactory, dry_run: bool = False, options: Overrides | None = None
) -> GarbageReport: ...


@overload
def garbage_collect_dataset(
    dataset_uuid: str | None,
    store: StoreLike | None,
    factory: DatasetFactory | None,
    *,
    dry_run: bool = False,
    options: Overrides | None = None,
    executor: Executor,
) -> GarbageReport: ...


def garbage_collect_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    factory: DatasetFactory | None = None,
    *,
    dry_run: bool = False,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> GarbageReport:
    """Remove the old files of a dataset that neither the document nor kept history names.

    Updates, overwrites and failed writes leave such files. Files younger than
    ``options(grace=...)`` (one day) stay, because a running write may need them. Replaced files
    stay for ``options(retain=...)`` (seven days after the commit; Delta: ``VACUUM … RETAIN``), so
    that older snapshots can be read; index files of older snapshots stay for the grace period only.
    ``options(grace=timedelta(0), retain=timedelta(0))`` removes everything at once, as kartothek
    does: only for a dataset without concurrent readers and writers. See the page *Maintenance*.

    If the store does not know when a file was written, the call records in ``<uuid>/_gc/`` which
    garbage it sees first; a later call removes files recorded longer than the grace period ago.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The call works on the newest state, whatever
        the factory has read.
    dry_run : bool, default False
        Only report what would be removed.
    options : optional
        Settings for this call, from `options`.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    GarbageReport
        Files that were (or would be) removed, and files that wait: key, size in bytes, age, reason.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If the document or a schema file cannot be read, so that the files in use are unknown.
        Nothing is removed.
    CommitConflict
        If other writers came first more often than ``options(commit_retries=...)`` while statistics
        of removed files were being dropped. Nothing is removed; call it again.

    Notes
    -----
    Store calls: one listing; the document; one call per history entry; before a removal, again the
    document and a listing of the history; one call per removed file. Ages are by this machine's
    clock; a time in the future counts as young.

    Garbage can be: keys below ``<uuid>/indices/``, below the folders of the dataset's tables, and
    below folders with the schema file of a former table, unless the document names them; and
    history. In a dataset whose document lists no partitions, only index files and history can be
    garbage. Other keys are never removed.

    Examples
    --------
    >>> import datetime as dt
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, options
    >>> from kartothek_cube.api.dataset import garbage_collect_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> for overwrite in (False, True):
    ...     args = {"partition_on": "COUNTRY_CODE", "overwrite": overwrite}
    ...     _ = store_dataframes_as_dataset(store, "sales", [sales], **args)
    >>> report = garbage_collect_dataset("sales", store)
    >>> len(report.removed), len(report.waiting), report.waiting[0].why
    (0, 2, 'older snapshots need it')
    >>> now = options(grace=dt.timedelta(0), retain=dt.timedelta(0))
    >>> report = garbage_collect_dataset("sales", store, options=now)
    >>> sum(file.key.endswith(".parquet") for file in report.removed), report.bytes > 0
    (2, True)
    """
    with operation("garbage_collect_dataset", options):
        source = dataset_ref(dataset_uuid, store, factory)
        return collect_garbage(source.store, source.uuid, dry_run=check_flag(dry_run, "dry_run"), executor=executor)


def convert_metadata_format(
    dataset_uuid: str, store: StoreLike, metadata_storage_format: str, *, options: Overrides | None = None
) -> DatasetMetadata:
    """Store the document of a dataset as JSON or as compressed msgpack, with the same content.

    No other call changes the encoding. Concurrent commits of this library fail with
    `CommitConflict`, so none is lost; other libraries must not write at the same time. After an
    interruption the dataset can be read; call again, with either format, to complete. See the page
    *The format*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    metadata_storage_format : {"json", "msgpack"}
        The encoding. With the present encoding, the call only removes the rest of an interrupted
        conversion, or a second document in the other encoding, which kartothek leaves when it
        updates a dataset with a msgpack document.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The converted dataset.

    Raises
    ------
    InvalidInput
        If the format is unknown, or cannot hold the dataset's metadata.
    DatasetNotFound
        If the dataset does not exist.
    CommitConflict
        If another writer changed the dataset at the same time; call again.
    AtomicityRequired, ReadOnlyStore
        If the store cannot compare and swap, or cannot be written to.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import convert_metadata_format, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"PRODUCT_ID": [1, 2]})])
    >>> _ = convert_metadata_format("sales", store, "msgpack")
    >>> store.list().keys
    ['sales.by-dataset-metadata.msgpack.zstd']
    """
    with operation("convert_metadata_format", options):
        source = dataset_ref(dataset_uuid, store, None)
        convert_document(source.store, source.uuid, metadata_storage_format)
        return DatasetMetadata.of(load_snapshot(source.store, source.uuid))


@overload
def verify_dataset(
    dataset_uuid: str, store: StoreLike, deep: bool = False, *, options: Overrides | None = None
) -> VerifyReport: ...


@overload
def verify_dataset(
    *, deep: bool = False, factory: DatasetFactory, options: Overrides | None = None
) -> VerifyReport: ...


def verify_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    deep: bool = False,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> VerifyReport:
    """Report damage of a dataset, and data that kartothek would read differently.

    Nothing is changed. The call reads documents, schema files and index files and lists the
    dataset's folder; with ``deep=True`` it also reads all data, in threads and with bounded memory.
    Damage is a finding, not an error. See the page *Verify*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    deep : bool, default False
        Read the data, too: check that every file can be read, has the columns and types of the
        dataset, and agrees with its path and with the secondary indices.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The call works on the newest state, whatever
        the factory has read.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    VerifyReport
        The findings, errors first. ``ok``: no error; ``clean``: no error and no warning.

    Raises
    ------
    DatasetNotFound
        If the dataset has no document.
    OSError
        If the store cannot be read.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset, verify_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on="COUNTRY_CODE")
    >>> verify_dataset("sales", store, deep=True).clean
    True
    >>> for key in store.list("sales/table/COUNTRY_CODE=FR/", recursive=True).keys:
    ...     store.delete(key)
    >>> [(finding.severity, finding.check) for finding in verify_dataset("sales", store).findings]
    [('error', 'missing-file')]
    """
    with operation("verify_dataset", options):
        # Not the snapshot of the factory: stored bytes are verified.
        source = dataset_ref(dataset_uuid, store, factory)
        is_deep = check_flag(deep, "deep")
        verified = verify(source.store, source.uuid, deep=is_deep)
        verified = verify_rows(source.store, verified) if is_deep else verified
        return report_of(f"dataset {source.uuid!r}", verified.findings, verified.counts, deep=is_deep)


@overload
def delete_dataset(dataset_uuid: str, store: StoreLike, *, options: Overrides | None = None) -> None: ...


@overload
def delete_dataset(*, factory: DatasetFactory, options: Overrides | None = None) -> None: ...


@overload
def delete_dataset(
    dataset_uuid: str | None,
    store: StoreLike | None,
    factory: DatasetFactory | None,
    *,
    options: Overrides | None = None,
    executor: Executor,
) -> None: ...


def delete_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> None:
    """Delete a dataset: history, garbage, index, data and schema files, and last the document.

    There is no grace period: concurrent readers may miss files. After an interruption the document
    still exists; call again. Files elsewhere are deleted if the document names them, except files
    of another dataset: these stay, and a warning is logged. Foreign keys below ``<uuid>/`` stay,
    too. See the page *Maintenance*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. It is invalidated.
    options : optional
        Settings for this call, from `options`.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If the document cannot be read; nothing is removed then. Damaged or missing schema files
        are no error.
    ReadOnlyStore
        If the store cannot be written to.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import delete_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"PRODUCT_ID": [1, 2]})])
    >>> delete_dataset("sales", store)
    >>> store.list(recursive=True).keys
    []
    """
    with operation("delete_dataset", options):
        source = dataset_ref(dataset_uuid, store, factory)
        try:
            delete_whole_dataset(source.store, source.uuid, executor)
        finally:  # an interrupted deletion has changed the dataset, too
            if source.factory is not None:
                source.factory.invalidate()


def compact_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    target_rows: int = TARGET_ROWS,
    predicates: IntoPredicates | None = None,
    dry_run: bool = False,
    *,
    sort_by: Columns = None,
    zorder_by: Columns = None,
    factory: DatasetFactory | None = None,
    df_serializer: FileFormat | None = None,
    rewrite: bool = False,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> CompactionReport:
    """Merge small files of a dataset into larger ones.

    All rows stay, and one commit makes the new files visible.

    Neighbouring files with the same partition values are merged, in their order. Files of half of
    ``target_rows`` or more stay as they are, and so do schema, indices and metadata. Files are
    never changed in place: running readers can go on with the old ones, which become garbage.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store of the dataset; everything that `open_store` takes.
    target_rows : int, default 1,000,000
        Maximum of rows in a merged file.
    predicates : list of list of tuple, optional
        Only the physical partitions in which they may hold by partition values and indices. Their
        columns must be partition keys or have a secondary index.
    dry_run : bool, default False
        Only report what would be done. Footers of files are read.
    sort_by : str or list of str, optional
        Sort the rows of each physical partition by these columns across its files, nulls last, so
        that a range of the first column lies in few files and row groups. Files of any size are
        rewritten, but those that are sorted already and overlap no other one.
    zorder_by : list of str, optional
        Two to eight columns: put the rows in Z-order, so that a range of any of these columns lies
        in few row groups. All files of a partition are rewritten if one of them is new.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state of the dataset is compacted,
        whatever the factory has read.
    df_serializer : FileFormat, optional
        The format of the merged files, e.g. ``ParquetSerializer("ZSTD")``. By default the format of
        the newest input, in Parquet also its codec.
    rewrite : bool, default False
        Write every file anew, whatever its size: with the layout on record, and without the old
        values of dropped columns.
    options : optional
        What `options` returns: settings for this call.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    CompactionReport
        Files, rows and bytes before and after, the physical partitions that changed, and the id of
        the commit, None with nothing to do. A notebook shows it as a table.

    Raises
    ------
    DatasetNotFound, KeyNotFound
        If the dataset, or one of its files, does not exist.
    InvalidRequest
        If predicates name a column that is neither partition key nor indexed, ``sort_by`` or
        ``zorder_by`` a partition key, or the document lists no partitions.
    InvalidInput, InvalidType
        If ``target_rows`` is no positive number, predicates do not fit the dataset, or ``sort_by``
        and ``zorder_by`` are both given.
    UnknownColumn, Unsupported
        If the dataset does not have a column of ``sort_by`` or ``zorder_by``, or its values have no
        order.
    CommitConflict
        If another process removed a merged file meanwhile. Nothing has changed. Added rows are no
        conflict.
    CorruptData
        If a file cannot be read.

    Notes
    -----
    Rows are read and written piece by piece, in about ``options(bytes_in_flight=...)`` of memory. A
    dataset of a cube is compacted as by `compact_cube`: each file is sorted by its dimension
    columns and has the newest row of each cell, and files that share cells are merged whatever
    their size.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import compact_dataset, read_table
    >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes as update
    >>> store = open_store("hmemory://")
    >>> for day in range(30):
    ...     sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "DAY": day, "UNITS": [day, 1]})
    ...     _ = update([sales], store, "sales", partition_on=["COUNTRY_CODE"])
    >>> report = compact_dataset("sales", store)
    >>> report.files_before, report.files_after, report.partitions
    (60, 2, ['COUNTRY_CODE=DE', 'COUNTRY_CODE=FR'])
    >>> len(read_table("sales", store))
    60
    >>> compact_dataset("sales", store)
    CompactionReport('sales': nothing to do for 2 partitions)
    """
    with operation("compact_dataset", options):
        source = dataset_ref(dataset_uuid, store, factory)
        limit = check_target_rows(target_rows)
        dry, anew = check_flag(dry_run, "dry_run"), check_flag(rewrite, "rewrite")
        wanted = check_clustering(sort_by, zorder_by)
        serializer = check_format(df_serializer, wanted)
        if not dry:
            check_store_can_commit(source.store)
        base = load_snapshot(source.store, source.uuid)
        if wanted is not None:
            check_columns(wanted, base)
        selected = selected_partitions(source.store, base, parse_predicates(predicates))
        # The metadata of a dataset of a cube describe its order.
        columns = cube_columns(base.document.metadata)
        order = None if columns is None else cell_order(base, *columns)
        files, selection = KeptFiles(source.store), Selection(base, selected, limit, order, wanted, serializer, anew)
        (compaction,) = plan_files(files, [selection.with_layout()], executor)
        (report,) = run_compactions(files, {base.uuid: compaction}, dry_run=dry, executor=executor).values()
        if isinstance(report, CommitConflict):
            raise report
        if source.factory is not None and report.commit is not None:
            source.factory.invalidate()
        return report


def publish_delta(
    dataset_uuid: str, store: StoreLike, *, always: bool = False, options: Overrides | None = None
) -> PublishedDelta:
    """Make a dataset a Delta table, or add its newest state as a version.

    A log is written beside the data files, which stay as they are: engines that know Delta read
    them in place, from the folder ``<dataset_uuid>/<table>``. Only this library writes them. See
    the page *Read it from Trino, Snowflake, Databricks, Fabric*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset. Of several tables each is a Delta table of its own.
    store : store
        URL, `open_store` result, simplekv store, or a function that returns one.
    always : bool, default False
        Publish after each later commit of this library, too. This is kept with the dataset until
        `unpublish_delta`. A publication that fails then is a `PublicationWarning`; the next one
        catches up.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    PublishedDelta
        The version, its commit, and what was written: nothing, if the state was published.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    Unsupported
        If Delta or its readers cannot have a column, type or partition value, or the dataset has
        files of CSV or no list of partitions. Nothing was written.
    InvalidRequest
        If it is a dataset of a cube in which newer files override cells: readers would see both
        rows. Compact it first. With ``always`` a table that is there stays at its version until
        then, with a `PublicationWarning`.
    CommitConflict
        If others published more often than ``options(commit_retries=...)`` meanwhile.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, publish_delta
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> published = publish_delta("sales", store, always=True)
    >>> published.version, published.added
    (0, 2)
    """
    with operation("publish_delta", options):
        source = dataset_ref(dataset_uuid, store, None)
        finish_pending(source.store, source.uuid)
        return publish_newest(source.store, source.uuid, always=check_flag(always, "always"))


def unpublish_delta(dataset_uuid: str, store: StoreLike, *, options: Overrides | None = None) -> None:
    """Remove the log of a Delta table, and stop publishing after each commit.

    The data files stay. Readers of the Delta table fail from now on.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : store
        URL, `open_store` result, simplekv store, or a function that returns one.
    options : optional
        Settings for this call, from `options`.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CommitConflict
        If other writers came first more often than ``options(commit_retries=...)``.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, publish_delta, unpublish_delta
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"UNITS": [3, 4]})])
    >>> _ = publish_delta("sales", store)
    >>> unpublish_delta("sales", store)
    >>> store.keys("sales/table/_delta_log/")
    []
    """
    with operation("unpublish_delta", options):
        source = dataset_ref(dataset_uuid, store, None)
        finish_pending(source.store, source.uuid)
        unpublish(source.store, source.uuid)
