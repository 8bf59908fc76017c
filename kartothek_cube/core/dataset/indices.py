"""Build secondary indices of an existing dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import check_store_can_commit, commit_change
from kartothek_cube.core.commit.dataset_write import repeat_on_conflict
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.indexing import Entries, built_indices
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import check_key
from kartothek_cube.core.write.arguments import column_names
from kartothek_cube.core.write.prepare import check_index_columns
from kartothek_cube.errors import InvalidRequest
from kartothek_cube.typing import StoreLike

__all__ = ["build_dataset_indices", "build_dataset_indices_on"]


def build_dataset_indices(
    store: StoreLike | None,
    dataset_uuid: str | None,
    columns: Iterable[str] | str,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
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
    >>> from kartothek_cube.core.dataset.write import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"BRAND": ["Acme", "Bolt"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales, sales[1:]])
    >>> factory = build_dataset_indices(store, "sales", "BRAND")
    >>> len(factory.load_index("BRAND").indices["BRAND"].query("Bolt"))
    2
    """
    with operation("build_dataset_indices", options):
        return build_dataset_indices_on(THREADS, store, dataset_uuid, columns, factory)


def build_dataset_indices_on(
    executor: Executor,
    store: StoreLike | None,
    dataset_uuid: str | None,
    columns: Iterable[str] | str,
    factory: DatasetFactory | None,
) -> DatasetFactory:
    """`build_dataset_indices` inside an operation; the executor reads the files."""
    source = dataset_ref(dataset_uuid, store, factory)
    check_store_can_commit(source.store)
    names = column_names(columns, "columns")
    # A retry after a conflict reads only the files that are not in here yet.
    entries: Entries = {}

    def build() -> None:
        base = load_snapshot(source.store, source.uuid)
        _check_can_index(base, names)
        built = built_indices(source.store, base, names, entries, executor)
        index_columns = tuple(sorted(base.secondary_columns | set(names)))
        change = Change(source.uuid, (), base.schemas, base.partition_keys, index_columns, built=built)
        source.committed(commit_change(source.store, change, base))

    repeat_on_conflict(build)
    return source.factory or DatasetFactory(source.uuid, source.store)


def _check_can_index(base: Snapshot, columns: Sequence[str]) -> None:
    present = {name for schema in base.schemas.values() for name in schema.names}
    missing = [c for c in columns if c not in present]
    if missing:
        raise InvalidRequest(
            f"Column {missing[0]!r} could not be found in the partitions of dataset {base.uuid!r}, "
            f"which has {sorted(present)}."
        )
    for key in check_index_columns(base.schemas, columns, base.partition_keys, base.uuid):
        check_key(key)
