"""Building statistics of files that have none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.bounds import columns_with_bounds, has_bounds
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import check_store_can_commit, commit_change
from kartothek_cube.core.commit.dataset_write import repeat_on_conflict
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.metadata.statistics import FileStatistics, candidate_names, gather
from kartothek_cube.core.runtime.executor import THREADS, map_files
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.statistics import footer_statistics, load_statistics
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.plan import column_names
from kartothek_cube.errors import InvalidRequest, Unsupported
from kartothek_cube.typing import StoreLike

__all__ = ["build_statistics"]


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
        names = candidate_names(files, base.uuid)
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
    return gather(found)


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
