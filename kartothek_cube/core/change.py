"""Changes of one dataset: splitting rows into partitions, receipts of staged files, and the document that follows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.index import SecondaryIndex, build_index, drop_labels, index_type, merge_indices
from kartothek_cube.core.metadata.chain import COMMITS_KEY, SCHEMA_KEY, extend_chain, fingerprint
from kartothek_cube.core.metadata.document import OWN_PREFIX, Document
from kartothek_cube.core.metadata.partition_values import partition_text
from kartothek_cube.core.metadata.partitions import PartitionColumns, empty_partitions
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import SINGLE_TABLE, fresh_id, label_of
from kartothek_cube.core.rowkeys import group_starts, pack_one, stable_order
from kartothek_cube.core.schema import ordered, unify
from kartothek_cube.core.schema_file import embedded_schemas
from kartothek_cube.errors import InvalidInput, Unsupported

__all__ = ["Change", "Part", "Receipt", "apply_change", "split_rows"]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one physical partition, without its partition columns; ``values`` are the partition values by column."""

    values: Mapping[str, Any]
    label: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Receipt:
    """What staging a file yields: enough to commit it without reading it.

    ``schema`` has the partition columns too; ``entries`` the distinct values of each indexed column; ``low`` and
    ``high`` the least and the greatest cell, as tuples of the sort columns.
    """

    dataset: str
    label: str
    key: str
    values: Mapping[str, Any]
    rows: int
    size: int
    schema: pa.Schema
    entries: Mapping[str, pa.Array]
    low: tuple[Any, ...] = ()
    high: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """Staged partitions, removed labels and metadata, to be published onto a snapshot (None: a new dataset).

    ``replace`` starts from nothing: the old partitions, indices, schema and user metadata go.
    """

    uuid: str
    receipts: tuple[Receipt, ...]
    schema: pa.Schema
    partition_keys: tuple[str, ...]
    index_columns: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    removed: pa.Array = field(default_factory=lambda: pa.array([], type=pa.string()))
    replace: bool = False
    commit: str = field(default_factory=fresh_id)

    def describe(self) -> str:
        """One line for error messages."""
        return f"commit {self.commit} ({len(self.receipts)} partitions added, {len(self.removed)} removed)"


@dataclass(frozen=True, slots=True)
class NewState:
    """What a change makes of a dataset: the document without index keys, schema, and the indices that have to be written."""

    document: Document
    schema: pa.Schema
    indices: Mapping[str, SecondaryIndex]


def split_rows(table: pa.Table, partition_on: Sequence[str], base_label: str, where: str) -> list[Part]:
    """Cut rows by their partition values; order inside a part is kept, parts come in order of their values."""
    if not partition_on:
        return [Part({}, base_label, table)]
    _refuse_nulls(table, partition_on, where)
    keys = pack_one(table, partition_on)
    order = stable_order(keys)
    if order is not None:
        table, keys = table.take(pa.array(order)), keys[order]
    starts = group_starts(keys)
    firsts = table.select(list(partition_on)).take(pa.array(starts)).to_pylist()
    payload = table.drop_columns(list(partition_on))
    if payload.num_columns == 0:
        raise InvalidInput(f"No data left to save outside partition columns {list(partition_on)} in dataset {where!r}.")
    lengths = np.diff(np.append(starts, len(keys)))
    return [_part(values, table.schema, base_label, payload.slice(s, n)) for values, s, n in zip(firsts, starts, lengths, strict=True)]


def _refuse_nulls(table: pa.Table, columns: Sequence[str], where: str) -> None:
    nulls = [c for c in columns if pc.any(pc.is_null(table.column(c), nan_is_null=pt.is_floating(table.schema.field(c).type))).as_py()]
    if nulls:
        raise InvalidInput(f"There are nulls in the partition columns {nulls} of dataset {where!r}; a path cannot name them.")


def _part(values: dict[str, Any], schema: pa.Schema, base_label: str, rows: pa.Table) -> Part:
    pairs = [(c, partition_text(v, schema.field(c).type)) for c, v in values.items()]
    return Part(values, label_of(pairs, base_label), rows)  # type: ignore[arg-type]


def index_entries(part: Part, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The distinct values of each indexed column of one part."""
    return {c: _distinct(part.table.column(c)) for c in columns}


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    distinct = pc.unique(column).drop_null()
    return distinct.filter(pc.invert(pc.is_nan(distinct))) if pt.is_floating(distinct.type) else distinct


def apply_change(change: Change, base: Snapshot | None, now: Callable[[], datetime] = lambda: datetime.now(UTC).replace(tzinfo=None)) -> NewState:
    """The state after the change. ``base`` must have every secondary index loaded if partitions come or go."""
    start = None if change.replace else base
    surplus = sorted(set(start.schemas) - {SINGLE_TABLE}) if start is not None else []
    if surplus:
        raise Unsupported(f"Dataset {change.uuid!r} has the tables {surplus}; only datasets of the one table {SINGLE_TABLE!r} can be changed.")
    schema = change.schema if start is None else ordered(unify([start.schema, change.schema], f"dataset {change.uuid!r}"), start.partition_keys)
    partitions = _new_partitions(change, start)
    indices = _new_indices(change, start, schema)
    kept = {} if start is None else {c: r for c, r in start.document.indices.items() if c not in indices}
    metadata = _new_metadata(change, base, start, schema, partitions, now)
    return NewState(Document(change.uuid, metadata, change.partition_keys, kept, partitions), schema, indices)


def _new_partitions(change: Change, base: Snapshot | None) -> PartitionColumns:
    old = base.partitions if base is not None else empty_partitions()
    labels = [r.label for r in change.receipts]
    if len(set(labels)) != len(labels):
        raise InvalidInput(f"Two new partitions of dataset {change.uuid!r} have the same label.")
    if len(change.removed):
        old = old.take(np.flatnonzero(~pc.is_in(old.labels, value_set=change.removed).to_numpy(zero_copy_only=False)))
    if labels and pc.any(pc.is_in(old.labels, value_set=pa.array(labels))).as_py():
        raise InvalidInput(f"Dataset {change.uuid!r} already has a partition with one of the new labels.")
    if not labels:
        return old
    new_labels, new_files = pa.array(labels, type=pa.string()), pa.array([r.key for r in change.receipts], type=pa.string())
    files = old.files.get(SINGLE_TABLE, pa.array([], type=pa.string()))
    return PartitionColumns(pa.concat_arrays([old.labels, new_labels]), {SINGLE_TABLE: pa.concat_arrays([files, new_files])})


def _new_indices(change: Change, base: Snapshot | None, schema: pa.Schema) -> dict[str, SecondaryIndex]:
    """The indices that differ from what is stored."""
    if base is not None and not change.receipts and not len(change.removed):
        return {}
    return {c: _new_index(change, base, schema, c) for c in change.index_columns}


def _new_index(change: Change, base: Snapshot | None, schema: pa.Schema, column: str) -> SecondaryIndex:
    kind = index_type(schema.field(column).type, column, change.uuid)
    fresh = build_index(column, kind, [(r.entries[column], r.label) for r in change.receipts])
    if base is None or column not in base.indices:
        return fresh
    return merge_indices([drop_labels(base.indices[column], change.removed), fresh])


def _new_metadata(
    change: Change, base: Snapshot | None, start: Snapshot | None, schema: pa.Schema, partitions: PartitionColumns, now: Callable[[], datetime]
) -> dict[str, Any]:
    old = dict(start.document.metadata) if start is not None else {}
    metadata = {k: v for k, v in old.items() if not k.startswith(OWN_PREFIX)}
    metadata.update(change.metadata)
    metadata.setdefault("creation_time", now().isoformat(timespec="microseconds"))
    chain = base.chain if base is not None else ()
    foreign = base is not None and base.has_foreign_commit
    metadata[COMMITS_KEY] = extend_chain(chain, change.commit, fingerprint(partitions), foreign=foreign)
    metadata[SCHEMA_KEY] = embedded_schemas({SINGLE_TABLE: schema})
    return metadata
