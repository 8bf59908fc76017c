"""Reading and writing in this process: ``plateau.io.eager``.

Arguments, defaults and results are plateau's; rules and errors are those of the functions of the
same names in `kartothek_cube.api.dataset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kartothek_cube.core.dataset import maintain, read, write
from kartothek_cube.core.dataset.write import StagedPartitions
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.maintenance.garbage import GarbageReport
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.runtime.executor import THREADS
from kartothek_cube.plateau.io.shapes import items_of, only_table, with_table
from kartothek_cube.typing import (
    Columns,
    DeleteScope,
    IntoItem,
    IntoItems,
    IntoMetadata,
    IntoPredicates,
    IntoSchema,
    MetadataMerger,
    StoreLike,
    UserMetadata,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "build_dataset_indices",
    "commit_dataset",
    "create_empty_dataset_header",
    "delete_dataset",
    "garbage_collect_dataset",
    "read_dataset_as_dataframes",
    "read_table",
    "store_dataframes_as_dataset",
    "update_dataset_from_dataframes",
    "write_single_partition",
]

build_dataset_indices = maintain.build_dataset_indices


def delete_dataset(
    dataset_uuid: str | None = None, store: StoreLike | None = None, factory: DatasetFactory | None = None
) -> None:
    """Delete a dataset.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.eager import delete_dataset, store_dataframes_as_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_gone", "sales", [sales])
    >>> delete_dataset("sales", "hfs://p_gone")
    """
    maintain.delete_dataset(dataset_uuid, store, factory, executor=THREADS)


def garbage_collect_dataset(
    dataset_uuid: str | None = None, store: StoreLike | None = None, factory: DatasetFactory | None = None
) -> GarbageReport:
    """Remove unreferenced files that are old enough.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.eager import garbage_collect_dataset
    >>> from kartothek_cube.plateau.io.eager import store_dataframes_as_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_swept", "sales", [sales])
    >>> garbage_collect_dataset("sales", "hfs://p_swept")
    GarbageReport(removed 0 files of 0 bytes; 0 files of 0 bytes wait)
    """
    return maintain.garbage_collect_dataset(dataset_uuid, store, factory, executor=THREADS)


def read_table(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    columns: list[str] | None = None,
    predicate_pushdown_to_io: bool = True,
    categoricals: list[str] | None = None,
    dates_as_object: bool = True,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
) -> pd.DataFrame:
    """Read a dataset as one frame, with dates as dates.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.eager import read_table, store_dataframes_as_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_read", "sales", [sales], table_name="shop")
    >>> read_table("sales", "hfs://p_read", columns=["UNITS"])
       UNITS
    0      3
    1      4
    """
    return read.read_table(
        dataset_uuid,
        store,
        only_table(dataset_uuid, store, factory),
        columns,
        predicate_pushdown_to_io=predicate_pushdown_to_io,
        categoricals=categoricals,
        dates_as_object=dates_as_object,
        predicates=predicates,
        factory=factory,
    )


def read_dataset_as_dataframes(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    columns: list[str] | None = None,
    predicate_pushdown_to_io: bool = True,
    categoricals: list[str] | None = None,
    dates_as_object: bool = True,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Columns = None,
) -> list[pd.DataFrame]:
    """Read a dataset as one frame for each partition, or for each value of indexed columns.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.eager import read_dataset_as_dataframes
    >>> from kartothek_cube.plateau.io.eager import store_dataframes_as_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_parts", "sales", [sales, sales])
    >>> [len(frame) for frame in read_dataset_as_dataframes("sales", "hfs://p_parts")]
    [2, 2]
    """
    table = only_table(dataset_uuid, store, factory)
    parts = read.read_dataset_as_dataframes(
        dataset_uuid,
        store,
        columns=columns,
        predicate_pushdown_to_io=predicate_pushdown_to_io,
        categoricals=categoricals,
        dates_as_object=dates_as_object,
        predicates=predicates,
        factory=factory,
        dispatch_by=dispatch_by,
    )
    return [part[table] for part in parts]


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
    table_name: str = SINGLE_TABLE,
) -> DatasetMetadata:
    """Store a list of frames as a new dataset.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.eager import store_dataframes_as_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> store_dataframes_as_dataset("hfs://p_store", "sales", [sales], table_name="shop").table_name
    'shop'
    """
    form = df_serializer, overwrite, secondary_indices, metadata_storage_format, metadata_version
    items = items_of(dfs, table_name, dataset_uuid)
    return write.store_dataframes_as_dataset(store, dataset_uuid, items, metadata, partition_on, *form)


def update_dataset_from_dataframes(
    df_list: IntoItems,
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    sort_partitions_by: Columns = None,
    secondary_indices: Columns = None,
    table_name: str = SINGLE_TABLE,
    factory: DatasetFactory | None = None,
) -> DatasetMetadata:
    """Add frames to a dataset and remove partitions, in one commit.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.eager import update_dataset_from_dataframes
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> update_dataset_from_dataframes([sales], "hfs://p_update", "sales")
    DatasetMetadata(uuid='sales', partitions=1, partition_keys=[])
    """
    return write.update_dataset_from_dataframes(
        items_of([df_list] if hasattr(df_list, "columns") else df_list, table_name, dataset_uuid),
        store,
        dataset_uuid,
        delete_scope,
        metadata,
        df_serializer,
        metadata_merger,
        default_metadata_version=default_metadata_version,
        partition_on=partition_on,
        sort_partitions_by=sort_partitions_by,
        secondary_indices=secondary_indices,
        factory=factory,
    )


def create_empty_dataset_header(
    store: StoreLike,
    dataset_uuid: str,
    schema: IntoSchema,
    partition_on: Columns = None,
    metadata: UserMetadata | None = None,
    overwrite: bool = False,
    metadata_storage_format: str = "json",
    metadata_version: int = 4,
    table_name: str = SINGLE_TABLE,
) -> DatasetMetadata:
    """Create a dataset without rows, whose files are visible as soon as they are written.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.api.dataset import create_empty_dataset_header, make_meta
    >>> schema = make_meta(pd.DataFrame({"UNITS": [3, 4]}), origin="sales")
    >>> create_empty_dataset_header("hfs://p_header", "sales", schema)
    DatasetMetadata(uuid='sales', partitions=0, partition_keys=[])
    """
    form = overwrite, metadata_storage_format, metadata_version
    return write.create_empty_dataset_header(store, dataset_uuid, {table_name: schema}, partition_on, metadata, *form)


def write_single_partition(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    data: IntoItem = None,
    df_serializer: FileFormat | None = None,
    metadata_version: int = 4,
    partition_on: Columns = None,
    factory: DatasetFactory | None = None,
    secondary_indices: Columns = None,
    table_name: str = SINGLE_TABLE,
) -> StagedPartitions:
    """Write only the files of one frame, to be committed by `commit_dataset`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.eager import store_dataframes_as_dataset
    >>> from kartothek_cube.plateau.io.eager import write_single_partition
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_single", "sales", [sales])
    >>> write_single_partition("hfs://p_single", "sales", sales)
    StagedPartitions(uuid='sales', partitions=1, rows=2)
    """
    return write.write_single_partition(
        store,
        dataset_uuid,
        with_table(data, table_name, dataset_uuid),
        df_serializer=df_serializer,
        metadata_version=metadata_version,
        partition_on=partition_on,
        factory=factory,
        secondary_indices=secondary_indices,
    )


def commit_dataset(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    new_partitions: IntoItems = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    metadata_merger: MetadataMerger | None = None,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    factory: DatasetFactory | None = None,
    secondary_indices: Columns = None,
) -> DatasetMetadata:
    """Commit partitions that are written, remove others, set metadata.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.eager import commit_dataset, store_dataframes_as_dataset
    >>> from kartothek_cube.plateau.io.eager import write_single_partition
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_commit", "sales", [sales])
    >>> written = write_single_partition("hfs://p_commit", "sales", sales)
    >>> len(commit_dataset("hfs://p_commit", "sales", [written]).partitions)
    2
    """
    return write.commit_dataset(
        store,
        dataset_uuid,
        new_partitions,
        delete_scope=delete_scope,
        metadata=metadata,
        metadata_merger=metadata_merger,
        default_metadata_version=default_metadata_version,
        partition_on=partition_on,
        factory=factory,
        secondary_indices=secondary_indices,
    )
