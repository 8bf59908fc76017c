"""Reading and writing item by item: ``plateau.io.iter``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kartothek_cube.core.dataset import read, write
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.plateau.io.shapes import only_table, with_table
from kartothek_cube.typing import (
    Columns,
    DeleteScope,
    IntoItem,
    IntoMetadata,
    IntoPredicates,
    MetadataMerger,
    StoreLike,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "read_dataset_as_dataframes__iterator",
    "store_dataframes_as_dataset__iter",
    "update_dataset_from_dataframes__iter",
]


def read_dataset_as_dataframes__iterator(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    columns: list[str] | None = None,
    predicate_pushdown_to_io: bool = True,
    categoricals: list[str] | None = None,
    dates_as_object: bool = True,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Columns = None,
) -> Iterator[pd.DataFrame]:
    """Read a dataset frame by frame, with bounded memory.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.eager import store_dataframes_as_dataset
    >>> from kartothek_cube.plateau.io.iter import read_dataset_as_dataframes__iterator
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_iter", "sales", [sales, sales])
    >>> [len(frame) for frame in read_dataset_as_dataframes__iterator("sales", "hfs://p_iter")]
    [2, 2]
    """
    table = only_table(dataset_uuid, store, factory)
    parts = read.read_dataset_as_dataframes__iterator(
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
    return (part[table] for part in parts)


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
    table_name: str = SINGLE_TABLE,
) -> DatasetMetadata:
    """Store the frames of a generator as a new dataset.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.iter import store_dataframes_as_dataset__iter
    >>> weeks = (pd.DataFrame({"WEEK": [week]}) for week in (1, 2))
    >>> len(store_dataframes_as_dataset__iter(weeks, "hfs://p_iter_store", "sales").partitions)
    2
    """
    items = (with_table(item, table_name, dataset_uuid) for item in df_generator)
    form = df_serializer, overwrite, metadata_storage_format, metadata_version, secondary_indices
    return write.store_dataframes_as_dataset__iter(items, store, dataset_uuid, metadata, partition_on, *form)


def update_dataset_from_dataframes__iter(
    df_generator: Iterable[IntoItem],
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
    factory: DatasetFactory | None = None,
    table_name: str = SINGLE_TABLE,
) -> DatasetMetadata:
    """Add the frames of a generator to a dataset and remove partitions, in one commit.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.iter import update_dataset_from_dataframes__iter
    >>> weeks = (pd.DataFrame({"WEEK": [week]}) for week in (1, 2))
    >>> len(update_dataset_from_dataframes__iter(weeks, "hfs://p_iter_more", "sales").partitions)
    2
    """
    return write.update_dataset_from_dataframes__iter(
        (with_table(item, table_name, dataset_uuid) for item in df_generator),
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
