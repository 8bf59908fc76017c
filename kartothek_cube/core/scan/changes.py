"""Two states of a dataset: the older one as the later sees it, and the files that differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.difference import CHANGE_TYPE
from kartothek_cube.core.arrow.keys import BoolArray, take_rows
from kartothek_cube.core.arrow.types import common_type, compatible
from kartothek_cube.core.expressions.predicates import Predicates
from kartothek_cube.core.metadata.index import keep_labels, merge_indices
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.scan.plan import FilePlan, indices_for, plan_scan
from kartothek_cube.core.snapshots.loader import built_indices, with_indices
from kartothek_cube.core.snapshots.time_travel import AsOf, check_as_of
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = [
    "changed_files",
    "check_change_type",
    "check_same_types",
    "check_since",
    "is_new",
    "shared_partition_keys",
    "unshared",
    "widened",
    "with_columns_of",
    "with_past_indices",
    "without_files",
]


def check_since(since: object) -> AsOf:
    """The argument ``since``: the id of a commit, or a moment with its zone.

    Raises
    ------
    InvalidType
        If it is neither.
    """
    checked = check_as_of(since, "since")
    if checked is None:
        raise InvalidType("since is the id of a commit or a tag (text), or a moment (datetime), not None.")
    return checked


def check_change_type(columns: Collection[str], context: str) -> None:
    """Raise if rows have a column of the name that tells the kind of a change."""
    if CHANGE_TYPE in columns:
        raise InvalidInput(f"{context} has a column {CHANGE_TYPE!r}, which is the name of the kind of a change.")


def shared_partition_keys(before: Snapshot, after: Snapshot, table: str, key: Collection[str]) -> list[str]:
    """The partition keys, without those of ``key``, whose values can be compared in both states."""
    was, now = before.schemas.get(table, pa.schema([])), after.schemas[table]
    types = {f.name: f.type for f in was}
    keys = [c for c in after.partition_keys if c not in key]
    return [c for c in keys if compatible(types.get(c, pa.null()), now.field(c).type)]


def check_same_types(was: pa.Schema, now: pa.Schema, columns: Iterable[str], uuid: str) -> None:
    """Raise `InvalidInput` for a column that had a type of another family before."""
    for column in columns:
        if {column} <= {*was.names} & {*now.names} and not compatible(was.field(column).type, now.field(column).type):
            raise InvalidInput(
                f"Column {column!r} of dataset {uuid!r} was {was.field(column).type} then and is "
                f"{now.field(column).type} now, so their values cannot be compared. Leave the column out."
            )


def widened(now: pa.Schema, was: Mapping[str, pa.DataType]) -> pa.Schema:
    """The columns with types that also hold the values that they had before, as far as any does.

    An overwrite may have narrowed a type.
    """
    types = {f.name: common_type(f.type, was.get(f.name, pa.null())) or f.type for f in now}
    return pa.schema(types)


# --- the older state as the later one sees it -----------------------------------------------------


def with_columns_of(before: Snapshot, schemas: Mapping[str, pa.Schema], indexed: Collection[str]) -> Snapshot:
    """An older state with other columns: those that it lacks are null.

    Of the columns ``indexed``, indices that it lacks are built where they are required.
    """
    new = dict.fromkeys({*indexed} - before.indexed_columns, "")
    document = replace(before.document, indices={**before.document.indices, **new})
    # Without a version, so that it is never cached.
    return replace(before, document=document, schemas=schemas, lost=before.lost | new.keys(), token=None)


def without_files(snapshot: Snapshot) -> Snapshot:
    """The same dataset before it had any rows."""
    nothing = snapshot.partitions.take([])
    return replace(
        snapshot,
        partitions=nothing,
        values=snapshot.values.slice(0, 0),
        document=replace(snapshot.document, partitions=nothing),
        indices={},
        lost=snapshot.secondary_columns,
        token=None,
    )


def with_past_indices(store: Store, before: Snapshot, after: Snapshot, columns: Collection[str]) -> Snapshot:
    """The older state with some indices loaded, of which it has no file any more.

    Only its files that the later state lacks are read.
    """
    lost = sorted({*columns} & before.lost & after.secondary_columns - before.indices.keys())
    if not lost:
        return before
    later = with_indices(store, after, lost)
    gone = is_new(before, after)
    partitions = before.partitions.take(np.flatnonzero(gone))
    built = built_indices(store, replace(before, partitions=partitions), lost)
    kept = before.partitions.labels.filter(pa.array(~gone))
    return before.with_indices({c: merge_indices([built[c], keep_labels(later.indices[c], kept)]) for c in lost})


def is_new(snapshot: Snapshot, other: Snapshot) -> BoolArray:
    """For each partition whether another state lacks it, or has other files under its label."""
    places = other.partitions.positions(snapshot.partitions.labels)
    new: BoolArray = places < 0
    positions = pa.array(places, mask=new)
    for table in {*snapshot.partitions.files, *other.partitions.files}:
        mine, theirs = snapshot.partitions.file_column(table), other.partitions.file_column(table).take(positions)
        same = pc.or_(pc.fill_null(pc.equal(mine, theirs), False), pc.and_(mine.is_null(), theirs.is_null()))
        new = new | ~same.to_numpy(zero_copy_only=False)
    return new


# --- the files of one table -----------------------------------------------------------------------


def changed_files(
    store: Store, snapshot: Snapshot, other: Snapshot, table: str, names: Sequence[str], predicates: Predicates | None
) -> FilePlan:
    """The files to read of a state that another state does not have."""
    new, _ = unshared(snapshot.partitions.file_column(table), other.partitions.file_column(table))
    positions = np.flatnonzero(new)
    some = replace(
        snapshot, partitions=snapshot.partitions.take(positions), values=take_rows(snapshot.values, positions)
    )
    # The indices are those of all files, so that the cache may keep them.
    indices = indices_for(store, snapshot, predicates) if len(positions) else {}
    return plan_scan(some, table, names, predicates, indices)


def unshared(texts: pa.Array, others: pa.Array) -> tuple[BoolArray, BoolArray]:
    """For each text of two columns whether the other column lacks it.

    Examples
    --------
    >>> unshared(pa.array(["a", "b"]), pa.array(["a", "c", "d"]))
    (array([False,  True]), array([False,  True,  True]))
    """
    both = min(len(texts), len(others))
    same = pc.fill_null(pc.equal(texts.slice(0, both), others.slice(0, both)), False)
    # Most commits add at the end: equal beginnings need no hash table, which takes much longer.
    begin = pc.index(same, False).as_py()
    begin = both if begin < 0 else begin
    places = pc.index_in(texts.slice(begin), value_set=others.slice(begin))
    mine, theirs = np.zeros(len(texts), dtype=bool), np.arange(len(others)) >= begin
    mine[begin:] = places.is_null().to_numpy(zero_copy_only=False)
    theirs[begin + places.drop_null().to_numpy()] = False
    return mine, theirs
