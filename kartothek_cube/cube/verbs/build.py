"""Build a cube, and extend it by further datasets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kartothek_cube.core.commit.change import OnConflict, check_on_conflict
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.kartothek.serializers import ParquetSerializer
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import KTK_CUBE_COMPRESSION, Cube
from kartothek_cube.cube.members.discovery import cube_and_store, dataset_ids, load_cube, load_named
from kartothek_cube.cube.write.commit import write_input
from kartothek_cube.cube.write.input_data import materialize, read_input
from kartothek_cube.cube.write.plan import check_arguments, check_extension, plan_build, plan_extend
from kartothek_cube.errors import AlreadyExists, DatasetNotFound, KeyNotFound
from kartothek_cube.typing import Columns, IntoCubeData, StoreLike, UserMetadata

__all__ = ["CUBE_SERIALIZER", "build_cube", "existing_for_build", "extend_cube"]

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
        rows, keys, opened = read_input(data, cube), materialize(partition_on), open_instrumented(store)
        check_arguments(cube, rows.names, metadata, keys, more=rows.rest is not None)
        existing = existing_for_build(cube, opened)
        rule = check_on_conflict(on_conflict)
        plan = partial(
            plan_build,
            cube,
            existing=existing,
            metadata=metadata,
            partition_on=keys,
            serializer=df_serializer,
            overwrite=overwrite,
            on_conflict=rule,
        )
        return {i: DatasetMetadata.of(landed) for i, landed in write_input(opened, plan, rows).items()}


def existing_for_build(cube: Cube, store: Store) -> dict[str, Snapshot]:
    """The datasets that a build would replace; an error if one of them cannot be read."""

    def is_broken(name: str) -> bool:
        try:
            return load_snapshot(store, cube.ktk_dataset_uuid(name)) is None
        except DatasetNotFound:
            return False  # no reader sees it: the write that was to make it has not committed
        except KeyNotFound:
            return True

    # What cannot be read cannot be replaced: the commit compares the stored state.
    ids = dataset_ids(cube.uuid_prefix, store)
    existing = load_named(cube.uuid_prefix, store, ids, skip_broken=True)
    broken = sorted(i for i in ids - set(existing) if is_broken(i))
    if broken:
        keys = ", ".join(document_key(cube.ktk_dataset_uuid(i)) for i in broken)
        raise AlreadyExists(
            f"Dataset {', '.join(broken)} already exists, but its schema file is missing, "
            f"so that it cannot be replaced. Restore it, or remove {keys}."
        )
    return existing


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
        rows, keys = read_input(data, cube), materialize(partition_on)
        check_extension(cube, rows.names, metadata, keys, more=rows.rest is not None)
        existing = load_cube(cube, opened)
        rule = check_on_conflict(on_conflict)
        plan = partial(
            plan_extend,
            cube,
            existing=existing,
            metadata=metadata,
            partition_on=keys,
            serializer=df_serializer,
            overwrite=overwrite,
            on_conflict=rule,
        )
        return {i: DatasetMetadata.of(landed) for i, landed in write_input(opened, plan, rows).items()}
