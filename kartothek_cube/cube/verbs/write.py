"""Build and extend a cube; append rows, replace and remove its partitions.

In order:

- build and extend
- append, update, remove partitions
"""

from __future__ import annotations

from collections.abc import Mapping

from kartothek_cube.core.commit.change import OnConflict
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.kartothek.serializers import ParquetSerializer
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import KTK_CUBE_COMPRESSION, Cube
from kartothek_cube.cube.members import cube_and_store
from kartothek_cube.cube.write.commit import remove_from_members, write_input
from kartothek_cube.cube.write.plan import (
    read_input,
)
from kartothek_cube.cube.write.stage import begin_append, begin_datasets, begin_update
from kartothek_cube.typing import Columns, IntoConditions, IntoCubeData, StoreLike, UserMetadata

CUBE_SERIALIZER = ParquetSerializer(compression=KTK_CUBE_COMPRESSION)


def build_cube(
    data: IntoCubeData,
    cube: Cube,
    store: StoreLike,
    metadata: Mapping[str, UserMetadata] | None = None,
    overwrite: bool = False,
    partition_on: Mapping[str, Columns] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Write the first datasets of a cube, the seed among them.

    Rows in memory are checked before the first file is written. A stream is written as it comes,
    and its errors are found before anything is visible. All datasets become visible at once. The
    rules are on the page *Cubes* of the documentation.

    Parameters
    ----------
    data : DataFrame, dict, or iterable of such
        A frame (the seed), a dict dataset id → frame, or an iterable of these. A frame is a pandas
        frame or anything with ``__arrow_c_stream__`` (pyarrow, Polars, DuckDB). A generator or a
        ``RecordBatchReader`` may have more rows than memory: the buffered ones take at most
        ``options(bytes_in_flight=...)``.
    cube : Cube
        The cube.
    store : str, path, store or callable
        The store to write to, in any form that `open_store` takes.
    metadata : dict, optional
        Dataset id → user metadata.
    overwrite : bool, default False
        Replace existing datasets of this cube; all of them must be in ``data``.
    partition_on : dict, optional
        Dataset id → partition columns of the dataset, by default the cube's. ``[]``: not
        partitioned.
    df_serializer : ParquetSerializer or CsvSerializer, optional
        The format of data files; by default Parquet with ZSTD compression, small files with SNAPPY.
    on_conflict : {"raise", "reapply"}
        The reaction when another writer has changed a dataset to overwrite since this call began.
        ``"raise"``: `CommitConflict`. ``"reapply"``: the dataset is replaced anyway (last writer
        wins), and ``commit.reapplied`` of the results says so. See the page *Many writers*.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata`.

    Raises
    ------
    InvalidInput, InvalidType
        For data that does not fit the cube: missing columns, nulls in partition, dimension or index
        columns, duplicate cells. The message names dataset and column.
    AlreadyExists
        If a dataset exists and ``overwrite`` is False.
    MultiTableCommitAborted
        If a dataset is empty, or the datasets would not make a valid cube.
    CommitConflict
        If another writer, since this call began, created one of the datasets, or added or removed
        partitions of a dataset to overwrite. Nothing is visible.
    CommitOutcomeUnknown
        If the store does not say whether the datasets are visible: all or none.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, open_store
    >>> from kartothek_cube.api.cube import build_cube
    >>> cube = Cube(["PRODUCT_ID", "SALES_DATE"], ["COUNTRY_CODE"], uuid_prefix="sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "DE"], "UNITS": [3, 4]})
    >>> sales["SALES_DATE"] = pd.Timestamp("2024-01-01")
    >>> build_cube(sales, cube, open_store("hmemory://"))
    {'seed': DatasetMetadata(uuid='sales++seed', partitions=1, partition_keys=['COUNTRY_CODE'])}
    """
    with operation("build_cube", options, cube=cube):
        rows, opened = read_input(data, cube), open_instrumented(store)
        arguments = metadata, overwrite, partition_on, df_serializer, on_conflict
        plan = begin_datasets(cube, opened, rows.names, *arguments, extends=False, more=rows.rest is not None)
        return DatasetMetadata.of_each(write_input(opened, plan, rows))


def extend_cube(
    data: IntoCubeData,
    cube: Cube | str,
    store: StoreLike,
    metadata: Mapping[str, UserMetadata] | None = None,
    overwrite: bool = False,
    partition_on: Mapping[str, Columns] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Add datasets to an existing cube; with ``overwrite``, replace datasets other than the seed.

    Arguments, results and errors are those of `build_cube`. The cube has to exist and to be valid.
    A payload column may exist in one dataset only.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, open_store
    >>> from kartothek_cube.api.cube import build_cube, extend_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, store)
    >>> stock = pd.DataFrame({"PRODUCT_ID": [2], "STOCK": [7]})
    >>> extend_cube({"stock": stock}, cube, store, partition_on={"stock": []})
    {'stock': DatasetMetadata(uuid='sales++stock', partitions=1, partition_keys=[])}
    """
    with operation("extend_cube", options, cube=cube):
        cube, opened = cube_and_store(cube, store)
        rows = read_input(data, cube)
        arguments = metadata, overwrite, partition_on, df_serializer, on_conflict
        plan = begin_datasets(cube, opened, rows.names, *arguments, extends=True, more=rows.rest is not None)
        return DatasetMetadata.of_each(write_input(opened, plan, rows))


# --- append ---------------------------------------------------------------------------------------


def append_to_cube(
    data: IntoCubeData,
    cube: Cube | str,
    store: StoreLike,
    metadata: Mapping[str, UserMetadata] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Add rows to datasets of a cube; nothing is removed.

    A cell that exists gets a newer row: queries see the newest one. ``data``, ``metadata`` and
    ``df_serializer`` are as in `build_cube`; the metadata is merged key by key.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata` of the datasets appended to.

    Raises
    ------
    InvalidInput
        For unknown datasets, and for columns or types that are not those of the dataset ("Schema
        violation").
    MultiTableCommitAborted
        If there are no rows for a dataset.
    CommitConflict
        If another writer deleted or replaced a dataset in between, or changed its indices. Nothing
        is visible in any dataset. Rows that another writer appended are no conflict.
    CommitOutcomeUnknown
        If the store does not say whether the rows have landed, which is in all datasets or in none.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, open_store
    >>> from kartothek_cube.api.cube import append_to_cube, build_cube, query_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "DE"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> correction = pd.DataFrame({"PRODUCT_ID": [2], "COUNTRY_CODE": ["DE"], "UNITS": [5]})
    >>> _ = append_to_cube(correction, cube, store)
    >>> query_cube(cube, store)[0]["UNITS"].tolist()
    [3, 5]
    """
    with operation("append_to_cube", options, cube=cube):
        cube, opened = cube_and_store(cube, store)
        rows = read_input(data, cube)
        plan = begin_append(cube, opened, metadata, df_serializer)
        return DatasetMetadata.of_each(write_input(opened, plan, rows))


def update_cube(
    data: IntoCubeData,
    cube: Cube | str,
    store: StoreLike,
    remove_conditions: IntoConditions,
    ktk_cube_dataset_ids: Columns = None,
    metadata: Mapping[str, UserMetadata] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Remove physical partitions and add rows, in one write to all datasets.

    Parameters
    ----------
    data, cube, store, metadata, df_serializer
        As in `append_to_cube`; ``{}`` for no rows.
    remove_conditions : Condition, Conjunction, str or iterable of these, or None
        Conditions on the cube's partition columns: the partitions in which they hold are removed.
        None removes nothing, an empty list removes all; an empty text is refused.
    ktk_cube_dataset_ids : iterable of str, optional
        The datasets to update, by default those in ``data``. A dataset that is partitioned by none
        of the condition columns loses all rows, and so has to be named.
    on_conflict : {"raise", "reapply"}
        The reaction when another writer has changed the partitions to remove since this call began.
        ``"raise"``: `CommitConflict`. ``"reapply"``: the partitions that the conditions select then
        are removed anyway (last writer wins), and ``commit.reapplied`` of the results says so. See
        the page *Many writers*.
    options : optional
        The result of `options`: settings for this call.

    Raises
    ------
    InvalidInput
        For conditions on other columns, and as in `append_to_cube`.
    MultiTableCommitAborted
        If a dataset would end up without partitions.
    CommitConflict
        If another writer has added or removed partitions in which the conditions hold since this
        call began. Nothing is visible in any dataset.
    CommitOutcomeUnknown
        As in `append_to_cube`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import C, Cube, open_store
    >>> from kartothek_cube.api.cube import build_cube, query_cube, update_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, store)
    >>> germany = pd.DataFrame({"PRODUCT_ID": [3], "COUNTRY_CODE": ["DE"]})
    >>> _ = update_cube(germany, cube, store, C("COUNTRY_CODE") == "DE")
    >>> query_cube(cube, store)[0]["PRODUCT_ID"].tolist()
    [2, 3]
    """
    with operation("update_cube", options, cube=cube):
        cube, opened = cube_and_store(cube, store)
        rows = read_input(data, cube)
        selection = remove_conditions, ktk_cube_dataset_ids
        plan = begin_update(cube, opened, *selection, metadata, df_serializer, on_conflict)
        return DatasetMetadata.of_each(write_input(opened, plan, rows))


def remove_partitions(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    ktk_cube_dataset_ids: Columns = None,
    metadata: Mapping[str, UserMetadata] | None = None,
    *,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Remove the physical partitions in which conditions on the cube's partition columns hold.

    Files stay in the store until `cleanup_cube`. An emptied dataset stays a member of the cube.

    Parameters
    ----------
    cube, store, metadata
        As in `append_to_cube`.
    conditions : Condition, Conjunction, str or iterable of these, optional
        None removes everything; an empty text is refused.
    ktk_cube_dataset_ids : iterable of str, optional
        The datasets to remove from, by default all. A dataset that is partitioned by none of the
        condition columns has to be named.
    on_conflict : {"raise", "reapply"}
        As in `update_cube`.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata` of all datasets of the cube.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import C, Cube, open_store
    >>> from kartothek_cube.api.cube import build_cube, query_cube, remove_partitions
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, store)
    >>> _ = remove_partitions(cube, store, C("COUNTRY_CODE") == "DE")
    >>> query_cube(cube, store)[0]["PRODUCT_ID"].tolist()
    [2]
    """
    with operation("remove_partitions", options, cube=cube):
        cube, opened = cube_and_store(cube, store)
        landed = remove_from_members(cube, opened, conditions, ktk_cube_dataset_ids, metadata, on_conflict)
        return DatasetMetadata.of_each(landed)
