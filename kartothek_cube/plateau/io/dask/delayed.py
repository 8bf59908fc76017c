"""Datasets as delayed values of dask: ``plateau.io.dask.delayed``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.dask import delayed
from kartothek_cube.dask.tasks import task
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
    from dask.delayed import Delayed

__all__ = [
    "delete_dataset__delayed",
    "garbage_collect_dataset__delayed",
    "read_dataset_as_delayed",
    "store_delayed_as_dataset",
    "update_dataset_from_delayed",
]

delete_dataset__delayed = delayed.delete_dataset__delayed
garbage_collect_dataset__delayed = delayed.garbage_collect_dataset__delayed


def read_dataset_as_delayed(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    columns: list[str] | None = None,
    predicate_pushdown_to_io: bool = True,
    categoricals: list[str] | None = None,
    dates_as_object: bool = True,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Columns = None,
) -> list[Delayed]:
    """Read a dataset as delayed frames.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.dask.delayed import read_dataset_as_delayed
    >>> from kartothek_cube.plateau.io.eager import store_dataframes_as_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_lazy", "sales", [sales, sales])
    >>> [len(part.compute()) for part in read_dataset_as_delayed("sales", "hfs://p_lazy")]
    [2, 2]
    """
    return delayed.read_table_as_delayed(
        dataset_uuid,
        store,
        only_table(dataset_uuid, store, factory),
        columns,
        predicate_pushdown_to_io=predicate_pushdown_to_io,
        categoricals=categoricals,
        dates_as_object=dates_as_object,
        predicates=predicates,
        factory=factory,
        dispatch_by=dispatch_by,
    )


def store_delayed_as_dataset(
    delayed_tasks: Iterable[Delayed | IntoItem],
    store: StoreLike,
    dataset_uuid: str | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    overwrite: bool = False,
    metadata_merger: MetadataMerger | None = None,
    metadata_version: int = 4,
    partition_on: Columns = None,
    metadata_storage_format: str = "json",
    table_name: str = SINGLE_TABLE,
    secondary_indices: Columns = None,
) -> Delayed:
    """Store delayed frames as a new dataset, lazily.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask import delayed
    >>> from kartothek_cube.plateau.io.dask.delayed import store_delayed_as_dataset
    >>> weeks = [delayed(pd.DataFrame)({"WEEK": [week]}) for week in (1, 2)]
    >>> len(store_delayed_as_dataset(weeks, "hfs://p_lazy_store", "sales").compute().partitions)
    2
    """
    form = df_serializer, overwrite, metadata_merger, metadata_version
    return delayed.store_delayed_as_dataset(
        _named(delayed_tasks, table_name, dataset_uuid),
        store,
        dataset_uuid,
        metadata,
        *form,
        partition_on,
        metadata_storage_format,
        secondary_indices,
    )


def update_dataset_from_delayed(
    delayed_tasks: Iterable[Delayed | IntoItem],
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
) -> Delayed:
    """Add delayed frames to a dataset and remove partitions, lazily, in one commit.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask import delayed
    >>> from kartothek_cube.plateau.io.dask.delayed import update_dataset_from_delayed
    >>> weeks = [delayed(pd.DataFrame)({"WEEK": [week]}) for week in (1, 2)]
    >>> len(update_dataset_from_delayed(weeks, "hfs://p_lazy_more", "sales").compute().partitions)
    2
    """
    form = df_serializer, metadata_merger, default_metadata_version
    return delayed.update_dataset_from_delayed(
        _named(delayed_tasks, table_name, dataset_uuid),
        store,
        dataset_uuid,
        delete_scope,
        metadata,
        *form,
        partition_on,
        sort_partitions_by,
        secondary_indices,
        factory,
    )


def _named(items: Iterable[Any], table: str, dataset: object) -> list[Delayed]:
    """The items, of a table; what is delayed stays so."""
    return [task("table", with_table, item, table, dataset) for item in items]
