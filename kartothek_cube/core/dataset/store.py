"""Storing rows as a new dataset."""

from __future__ import annotations

from collections.abc import Iterable

from kartothek_cube.core.change import OnConflict, check_on_conflict
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.dataset.arguments import check_version, target_of
from kartothek_cube.core.dataset.plan_write import plan_new
from kartothek_cube.core.dataset.run import CommitOptions, commit_staged, metadata_arguments, stage_data
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.snapshots import find_snapshot
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import Columns, IntoItem, IntoItems, IntoMetadata, StoreLike

__all__ = ["store_dataframes_as_dataset", "store_dataframes_as_dataset__iter"]


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

    What is in memory is checked whole before the first file is written; nothing is visible before everything is stored. See the
    page *Writing datasets*.

    Parameters
    ----------
    store : str, path, store or callable
        Where the dataset lies; everything that `open_store` takes.
    dataset_uuid : str, optional
        Name of the dataset: ASCII letters, digits, ``+``, ``-``, ``_``. None makes a random one.
    dfs : iterable of rows
        Each item becomes one partition, or with ``partition_on`` one for each combination of values that it has. An item is a pandas
        frame; anything with ``__arrow_c_stream__`` (pyarrow, Polars, DuckDB), of which a stream is cut into blocks that fit into memory;
        a dict table → rows; ``{"label": ..., "data": {table: rows}}``; a list of items; or None.
    metadata : dict or callable, optional
        User metadata, which JSON can hold; a callable is called once, when all rows are stored.
    partition_on : str or list of str, optional
        Columns whose values become part of the files' paths, in this order.
    df_serializer : ParquetSerializer or CsvSerializer, optional
        How data files are written.
    overwrite : bool, default False
        Replace a dataset of this name: its partitions, schema, indices and metadata. Its files are garbage then.
    secondary_indices : str or list of str, optional
        Columns that get an inverted index: value → partitions.
    metadata_storage_format : {"json", "msgpack"}
        Encoding of the document, which the dataset keeps for life.
    metadata_version : int
        Version of the format; only 4.
    on_conflict : {"raise", "reapply"}
        What happens where somebody else has, since this call began, changed what ``overwrite`` replaces. ``"raise"``: `CommitConflict`.
        ``"reapply"``: whatever is there by then goes all the same (the last writer wins), and ``commit.reapplied`` of the result says so. See the page
        *Many writers*.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed.

    Raises
    ------
    AlreadyExists
        If the dataset exists and ``overwrite`` is False.
    InvalidInput, InvalidType, Unsupported
        If an argument or a column cannot be stored so; the message names it. `InvalidRequest` for an index on a partition column
        or on a column that some rows lack.
    CommitConflict
        If somebody else created the dataset meanwhile, or has added or removed partitions of the one that is overwritten.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.core.stores import open_store
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "DE", "FR"], "PRODUCT_ID": [1, 2, 1], "UNITS": [3, 4, 5]})
    >>> dataset = store_dataframes_as_dataset(open_store("hmemory://"), "sales", [sales], partition_on=["COUNTRY_CODE"], secondary_indices=["PRODUCT_ID"])
    >>> sorted(label.split("/")[0] for label in dataset.partitions)
    ['COUNTRY_CODE=DE', 'COUNTRY_CODE=FR']
    """
    with operation("store_dataframes_as_dataset", options):
        check_version(metadata_version)
        rules = CommitOptions(on_conflict=check_on_conflict(on_conflict))
        target = target_of(store, dataset_uuid, generate=True)
        request = plan_new(
            target.uuid, find_snapshot(target.store, target.uuid), partition_on, secondary_indices, df_serializer, overwrite, metadata_storage_format
        )
        arguments = metadata_arguments(metadata, None, target.uuid)
        staged = stage_data(target.store, request, dfs)
        if not staged.items:
            raise InvalidInput(f"Cannot store empty datasets, partition_list must not be empty if in store mode: there are no rows for {target.uuid!r}.")
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
    """Store rows as they come: `store_dataframes_as_dataset` with the arguments in another order.

    Items of ``df_generator`` are checked and stored one after the other, as many at a time as fit into ``options(bytes_in_flight=...)``.
    If the generator or a check fails, nothing is visible, and the files that were written are garbage.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.core.stores import open_store
    >>> months = (pd.DataFrame({"MONTH": [month], "UNITS": [month * 10]}) for month in range(1, 4))
    >>> len(store_dataframes_as_dataset__iter(months, open_store("hmemory://"), "monthly").partitions)
    3
    """
    args = (dataset_uuid, df_generator, metadata, partition_on, df_serializer, overwrite, secondary_indices, metadata_storage_format, metadata_version)
    with operation("store_dataframes_as_dataset__iter", options):
        return store_dataframes_as_dataset(store, *args, on_conflict=on_conflict)
