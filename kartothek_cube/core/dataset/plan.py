"""Planning a scan of one table: the indices that help are read, then everything is pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.dataset.requests import LabelFilter, check_table, checked_columns
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.predicates import Clause, Predicates
from kartothek_cube.core.scan import FilePlan, check_predicate_columns, needed_indices, plan_scan
from kartothek_cube.core.snapshots import load_index, remember
from kartothek_cube.core.store import Store

__all__ = ["KeepIndices", "indices_for", "labels_of", "load_indices", "make_file_plan"]

KeepIndices: TypeAlias = Callable[[Snapshot], object]
"""Takes a snapshot with more indices loaded, to keep these as long as it likes."""

# A larger index (of value-label pairs) is not kept in memory between reads.
_KEPT_PAIRS = 1_000_000


def make_file_plan(
    store: Store,
    snapshot: Snapshot,
    table: str,
    names: Sequence[str] | None,
    predicates: Predicates | None,
    label_filter: LabelFilter | None = None,
    *,
    keep: KeepIndices | None = None,
) -> FilePlan:
    """Check columns and predicates against the snapshot, load the indices that help, and plan."""
    schema = check_table(snapshot, table)
    columns = checked_columns(names, schema, snapshot.uuid)
    check_predicate_columns(predicates, schema, snapshot.uuid)
    plan = plan_scan(snapshot, table, columns, predicates, indices_for(store, snapshot, predicates, keep=keep))
    if label_filter is None:
        return plan
    wanted = np.array([bool(label_filter(label)) for label in labels_of(plan, snapshot, table)], dtype=bool)
    return plan.take(np.flatnonzero(wanted))


def indices_for(
    store: Store,
    snapshot: Snapshot,
    predicates: Predicates | None,
    also: Collection[str] = (),
    *,
    keep: KeepIndices | None = None,
) -> dict[str, SecondaryIndex]:
    """The indices that `needed_indices` names for one dataset, loaded.

    With ``keep`` they are read whole, and the snapshot with all of them goes there instead of the cache.
    """
    needed = needed_indices(snapshot, predicates, also)
    if keep is None:
        return load_indices(store, [(snapshot, needed)])[0]
    loaded = map_in_threads(lambda column: load_index(store, snapshot, column)[0], list(needed), store=store)
    indices = dict(zip(needed, loaded, strict=True))
    if indices.keys() - snapshot.indices.keys():
        keep(snapshot.with_indices(indices))
    return indices


def load_indices(store: Store, needed: Sequence[tuple[Snapshot, Mapping[str, Sequence[Clause]]]]) -> list[dict[str, SecondaryIndex]]:
    """Secondary indices of some datasets, read side by side; one dictionary a dataset.

    Of each only the row groups are read in which values may satisfy its clauses. Those that were read
    whole stay with the cached snapshot for the next call, unless they are large.
    """
    reads = [(snapshot, column, clauses) for snapshot, columns in needed for column, clauses in columns.items()]
    loaded = iter(list(map_in_threads(lambda read: load_index(store, *read), reads, store=store)))
    result = []
    for snapshot, columns in needed:
        own = {column: next(loaded) for column in columns}
        small = {c: index for c, (index, is_whole) in own.items() if is_whole and len(index) <= _KEPT_PAIRS}
        if small.keys() - snapshot.indices.keys():
            remember(store, snapshot.with_indices(small))
        result.append({column: index for column, (index, _) in own.items()})
    return result


def labels_of(plan: FilePlan, snapshot: Snapshot, table: str) -> list[str]:
    """The labels of the planned files."""
    files = snapshot.partitions.files.get(table, pa.array([], type=pa.string()))
    labels: list[str] = snapshot.partitions.labels.take(pc.index_in(plan.files, value_set=files)).to_pylist()
    return labels
