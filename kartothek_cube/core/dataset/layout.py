"""Set the layout of a dataset, and drop columns: commits of the document alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pyarrow.types as pt

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import check_store_can_commit, commit_change
from kartothek_cube.core.commit.dataset_write import repeat_on_conflict
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.io.formats import CODECS
from kartothek_cube.core.io.reader import Clustering
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.maintenance.compaction_plan import check_columns
from kartothek_cube.core.metadata.snapshot import Snapshot, cube_columns, type_of_column
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.write.layout import DatasetLayout, dropped_columns, layout_of
from kartothek_cube.core.write.plan import column_names
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType, UnknownColumn
from kartothek_cube.typing import Columns, StoreLike

__all__ = ["drop_columns", "set_layout"]


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
            layout = replace(layout_of(base.document.metadata, base.uuid), **given)  # type: ignore[arg-type]
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
