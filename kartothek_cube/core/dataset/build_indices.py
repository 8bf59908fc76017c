"""Building secondary indices on the partitions that a dataset has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kartothek_cube.core.change import Change
from kartothek_cube.core.commit import check_store_can_commit, commit
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import DatasetRef, source_of
from kartothek_cube.core.dataset.plan_write import column_names
from kartothek_cube.core.layout import check_index_columns
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.options import Overrides, current_options
from kartothek_cube.core.parallel import THREADS, Executor
from kartothek_cube.core.snapshots import Entries, built_indices, file_entries, load_snapshot
from kartothek_cube.core.store import check_key
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import CommitConflict, CubeCommitIncomplete, InvalidRequest
from kartothek_cube.typing import StoreLike

__all__ = ["Entries", "build_dataset_indices", "build_dataset_indices_on", "built_indices", "file_entries", "repeated"]

T = TypeVar("T")


def build_dataset_indices(
    store: StoreLike | None, dataset_uuid: str | None, columns: Iterable[str] | str, factory: DatasetFactory | None = None, *, options: Overrides | None = None
) -> DatasetFactory:
    """Build secondary indices on columns of a dataset that exists, reading only these columns.

    Other indices and the metadata stay as they are; an index that is there already is made anew.

    Parameters
    ----------
    store, dataset_uuid, factory
        Where the dataset lies: ``store`` and ``dataset_uuid``, or a `DatasetFactory`.
    columns : str or list of str
        The columns.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    DatasetFactory
        The dataset with its new indices.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidRequest
        If no table has a column, or it is a partition key, which is indexed by its path.
    Unsupported
        If the type of a column cannot be indexed.
    CommitConflict
        If others added or removed partitions in between more often than ``options(commit_retries=...)`` says; nothing is visible. Each time only new
        files are read.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.core.dataset.store import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> sales = [pd.DataFrame({"BRAND": ["Acme", "Bolt"], "UNITS": [1, 2]}), pd.DataFrame({"BRAND": ["Bolt"], "UNITS": [3]})]
    >>> _ = store_dataframes_as_dataset(store, "sales", sales)
    >>> factory = build_dataset_indices(store, "sales", "BRAND")
    >>> len(factory.load_index("BRAND").indices["BRAND"].query("Bolt"))
    2
    """
    with operation("build_dataset_indices", options):
        return build_dataset_indices_on(THREADS, store, dataset_uuid, columns, factory)


def build_dataset_indices_on(executor: Executor, store: StoreLike | None, dataset_uuid: str | None, columns: Iterable[str] | str, factory: DatasetFactory | None) -> DatasetFactory:
    """Build indices as `build_dataset_indices` does, inside an operation; the executor reads the files."""
    source = source_of(dataset_uuid, store, factory)
    check_store_can_commit(source.store)
    names = column_names(columns, "columns")
    known: Entries = {}
    repeated(lambda: _build(source, names, known, executor))
    return source.factory or DatasetFactory(source.uuid, source.store)


def _build(source: DatasetRef, names: Sequence[str], known: Entries, executor: Executor) -> None:
    base = load_snapshot(source.store, source.uuid)
    _check(base, names)
    built = built_indices(source.store, base, names, known, executor)
    index_columns = tuple(sorted(base.secondary_columns | set(names)))
    change = Change(source.uuid, (), base.schemas, base.partition_keys, index_columns, built=built)
    source.committed(commit(source.store, change, base))


def repeated(attempt: Callable[[], T]) -> T:
    """An index is of exactly the partitions that it was built on: where others have come in between, it is built again, up to ``commit_retries`` times."""
    for _ in range(current_options().commit_retries):
        try:
            return attempt()
        except CommitConflict:
            pass
        except CubeCommitIncomplete as error:
            if not isinstance(error.__cause__, CommitConflict):
                raise
    return attempt()


def _check(base: Snapshot, columns: Sequence[str]) -> None:
    known = {name for schema in base.schemas.values() for name in schema.names}
    missing = [c for c in columns if c not in known]
    if missing:
        raise InvalidRequest(f"Column {missing[0]!r} could not be found in the partitions of dataset {base.uuid!r}, which has {sorted(known)}.")
    for key in check_index_columns(base.schemas, columns, base.partition_keys, base.uuid):
        check_key(key)
