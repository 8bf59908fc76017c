"""Changes of one dataset: parts, receipts of staged files, and the document that follows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.index import SecondaryIndex, build_index, drop_labels, index_type, merge_indices
from kartothek_cube.core.markup import counted
from kartothek_cube.core.metadata.chain import COMMITS_KEY, SCHEMA_KEY, Commit, CubeCommit, extend_chain, fingerprint
from kartothek_cube.core.metadata.document import OWN_PREFIX, Document
from kartothek_cube.core.metadata.partitions import PartitionColumns, empty_partitions
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column, with_key_types
from kartothek_cube.core.metadata.txn import Txn, with_txn
from kartothek_cube.core.naming import SINGLE_TABLE, fresh_id
from kartothek_cube.core.schema import compatible, ordered, unify
from kartothek_cube.core.schema_file import embedded_schemas
from kartothek_cube.errors import InvalidInput

__all__ = [
    "Change",
    "OnConflict",
    "Part",
    "Receipt",
    "apply_change",
    "check_on_conflict",
    "check_shared_columns",
    "distinct_values",
    "index_entries",
]


OnConflict: TypeAlias = Literal["raise", "reapply"]
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def check_on_conflict(value: object) -> OnConflict:
    """The argument ``on_conflict``.

    Raises
    ------
    InvalidInput
        If it is neither ``"raise"`` nor ``"reapply"``.
    """
    if not isinstance(value, str) or value not in ("raise", "reapply"):
        raise InvalidInput(f'on_conflict is "raise" or "reapply", not {value!r}.')
    return "raise" if value == "raise" else "reapply"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one physical partition, without its partition columns; ``values`` are the partition values by column."""

    values: Mapping[str, Any]
    label: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Receipt:
    """What staging a file yields: enough to commit it without reading it.

    ``schema`` has the partition columns too; ``entries`` the distinct values of each indexed column that the file has; ``low``
    and ``high`` the least and the greatest cell, as tuples of the sort columns; ``staged`` when the file was written (UTC).
    Receipts of one label with different tables make one partition.
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
    table: str = SINGLE_TABLE
    staged: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __setstate__(self, state: Sequence[Any]) -> None:
        # One that was pickled before receipts had a time may be of any age.
        for name, value in zip(self.__slots__, (*state, *[_LONG_AGO] * (len(self.__slots__) - len(state))), strict=True):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Change:
    """Staged partitions, removed labels and metadata, to be published onto a snapshot (None: a new dataset).

    Attributes
    ----------
    uuid : str
        The dataset.
    receipts : tuple of Receipt
        Staged files. One whose label the dataset has already replaces that partition.
    schemas : Mapping[str, pyarrow.Schema]
        Table → columns of the new rows, in stored types. Tables that are absent stay as they are.
    partition_keys, index_columns : tuple of str
        Those of the dataset after the change.
    metadata : Mapping[str, Any]
        User metadata to be set.
    forgotten : frozenset of str
        User metadata to be removed.
    removed : pyarrow.Array
        Labels of partitions that go.
    scope : Callable, optional
        Gives the labels that go from any state of the dataset whose indices are loaded; None: ``removed``, whatever the state.
    merge : Callable, optional
        Gives ``metadata`` and ``forgotten`` for any state, or None for none; None: they are the same whatever the state.
    places : Mapping[str, str]
        New label → the label of the base, going or staying, after which it comes; ``""``: before all. Others come last.
    on_conflict : {"raise", "reapply"}
        What happens where another commit has changed what this one removes or replaces.
    built : Mapping[str, SecondaryIndex]
        Whole new indices, made for exactly the partitions of the base.
    dropped : frozenset[str]
        Columns whose indices go; none of them is among ``index_columns``.
    replace : bool
        Start from nothing: the old partitions, indices, schema and user metadata go.
    creates : bool
        Where there was no dataset: somebody else must not have made it since. False: the rows are added to whatever is there by then.
    explicit : bool
        False: a header, whose document lists no partitions.
    add_columns : bool
        Columns that the dataset lacks widen its schema.
    msgpack : bool
        The encoding of a new document; one that exists keeps its own.
    commit : str
        Id of the commit.
    cube : CubeCommit | None
        The write to a cube that it is a part of.
    txn : Txn | None
        A numbered write, which is skipped where the dataset has its number or a later one.
    """

    uuid: str
    receipts: tuple[Receipt, ...]
    schemas: Mapping[str, pa.Schema]
    partition_keys: tuple[str, ...]
    index_columns: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    removed: pa.Array = field(default_factory=lambda: pa.array([], type=pa.string()))
    scope: Callable[[Snapshot], pa.Array] | None = None
    merge: Callable[[Snapshot | None], tuple[Mapping[str, Any], frozenset[str]]] | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    on_conflict: OnConflict = "raise"
    built: Mapping[str, SecondaryIndex] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    replace: bool = False
    creates: bool = True
    explicit: bool = True
    add_columns: bool = False
    msgpack: bool = False
    commit: str = field(default_factory=fresh_id)
    cube: CubeCommit | None = None
    txn: Txn | None = None

    @property
    def labels(self) -> list[str]:
        """Labels of the new partitions, in order."""
        return list(dict.fromkeys(r.label for r in self.receipts))

    def describe(self) -> str:
        """One line for error messages."""
        return f"commit {self.commit} ({counted(len(self.labels), 'partition')} added, {len(self.removed)} removed)"


@dataclass(frozen=True, slots=True)
class NewState:
    """What a change makes of a dataset: the document without new index keys, schemas, the indices that have to be written, and the labels that went.

    ``appends`` says that the partitions of the base are all there, in front of the new ones.
    """

    document: Document
    schemas: Mapping[str, pa.Schema]
    indices: Mapping[str, SecondaryIndex]
    gone: pa.Array
    appends: bool = False


def index_entries(part: Part, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The distinct values of each indexed column that one part has."""
    return {c: distinct_values(part.table.column(c)) for c in columns if c in part.table.column_names}


def distinct_values(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column, each once, without nulls and NaN."""
    distinct = column.unique()
    distinct = distinct.drop_null() if distinct.null_count else distinct
    return distinct.filter(pc.invert(pc.is_nan(distinct))) if pt.is_floating(distinct.type) else distinct


def apply_change(change: Change, base: Snapshot | None, now: datetime | None = None) -> NewState:
    """The state after the change. ``base`` must have every secondary index loaded if partitions come or go; ``now`` is UTC."""
    start = None if change.replace else base
    schemas = _new_schemas(change, start)
    gone = _gone_labels(change, start)
    partitions = _new_partitions(change, start, gone)
    indices = _new_indices(change, start, schemas, gone)
    kept = {} if start is None else {c: r for c, r in start.document.indices.items() if c not in indices and c not in change.dropped}
    metadata = _new_metadata(change, base, start, schemas, partitions, now or datetime.now(UTC))
    replaced = base.partitions.labels if change.replace and base is not None else gone
    appends = not change.replace and partitions is not None and not len(gone) and not change.places
    return NewState(Document(change.uuid, metadata, change.partition_keys, kept, partitions), schemas, indices, replaced, appends)


def _new_schemas(change: Change, base: Snapshot | None) -> dict[str, pa.Schema]:
    old = {} if base is None else dict(base.schemas)
    if old and change.receipts and set(old) != set(change.schemas):
        raise InvalidInput(f"Input partitions for update have different tables than dataset {change.uuid!r}: {sorted(change.schemas)}, not {sorted(old)}.")
    new = {t: ordered(_merged(change, t, old.get(t), s), change.partition_keys) for t, s in change.schemas.items()}
    schemas = with_key_types({**old, **new}, change.partition_keys, change.uuid)
    check_shared_columns(schemas, change.uuid)
    return schemas


def _merged(change: Change, table: str, old: pa.Schema | None, new: pa.Schema) -> pa.Schema:
    if old is None:
        return new
    where = f"dataset {change.uuid!r}" if table == SINGLE_TABLE else f"table {table!r} of dataset {change.uuid!r}"
    if change.add_columns:
        old = pa.schema([*old, *(f for f in new if f.name not in old.names)])
    return unify([old, new], where)


def check_shared_columns(schemas: Mapping[str, pa.Schema], uuid: str) -> None:
    """Refuse columns that have different types in two tables of a dataset."""
    seen: dict[str, tuple[str, pa.DataType]] = {}
    for table, schema in schemas.items():
        for column in schema:
            other, kind = seen.get(column.name, (table, column.type))
            if not compatible(kind, column.type):
                raise InvalidInput(
                    f"Found incompatible entries for column {column.name!r} of dataset {uuid!r}: {kind} in table {other!r}, {column.type} in table {table!r}."
                )
            seen[column.name] = (table, column.type) if pt.is_null(kind) else (other, kind)


def _gone_labels(change: Change, base: Snapshot | None) -> pa.Array:
    """Labels that are removed or replaced."""
    if base is None or not change.receipts:
        return change.removed
    new, old = pa.array(change.labels, type=pa.string()), base.partitions.labels
    # Looking for few among many is ten times as fast as the other way round.
    replaced = new.filter(pc.is_in(new, value_set=old.filter(pc.is_in(old, value_set=new))))
    return pa.concat_arrays([change.removed, replaced]) if len(replaced) else change.removed


def _new_partitions(change: Change, base: Snapshot | None, gone: pa.Array) -> PartitionColumns | None:
    if not change.explicit and not change.receipts:
        return None
    old = base.partitions if base is not None else empty_partitions()
    stays = ~pc.is_in(old.labels, value_set=gone).to_numpy(zero_copy_only=False) if len(gone) else np.ones(len(old), dtype=bool)
    new = _staged_partitions(change)
    joined = _joined(old, new) if len(new) else old
    if not stays.all() or change.places:
        joined = joined.take(_order(change, old, new, stays))
    # A table of which no partition has a file is not in the document, so that it must not be in the fingerprint.
    return joined if stays.all() and not len(new) else replace(joined, files={t: f for t, f in joined.files.items() if f.null_count < len(f)})


def _order(change: Change, old: PartitionColumns, new: PartitionColumns, stays: np.ndarray[Any, Any]) -> Any:
    """Positions in old and new partitions, one after the other: those that stay, and each new one where it belongs."""
    before = pa.array([change.places.get(label) for label in new.labels.to_pylist()], type=pa.string())
    found = pc.fill_null(pc.index_in(before, value_set=old.labels), len(old)).to_numpy(zero_copy_only=False)
    places = np.where(pc.fill_null(pc.equal(before, ""), False).to_numpy(zero_copy_only=False), -1, found)
    kept = np.flatnonzero(stays)
    rows = np.concatenate([kept, np.arange(len(old), len(old) + len(new))])
    return rows[np.argsort(np.concatenate([kept, places]), kind="stable")]


def _joined(old: PartitionColumns, new: PartitionColumns) -> PartitionColumns:
    tables = dict.fromkeys([*old.files, *new.files])
    files = {t: pa.concat_arrays([_files(old, t), _files(new, t)]) for t in tables}
    return PartitionColumns(pa.concat_arrays([old.labels, new.labels]), files)


def _files(partitions: PartitionColumns, table: str) -> pa.Array:
    return partitions.files[table] if table in partitions.files else pa.nulls(len(partitions), pa.string())


def _staged_partitions(change: Change) -> PartitionColumns:
    labels = change.labels
    position = {label: i for i, label in enumerate(labels)}
    # One list a table, and not one a receipt: it is as long as there are labels.
    files: dict[str, list[str | None]] = {table: [None] * len(labels) for table in dict.fromkeys(r.table for r in change.receipts)}
    for receipt in change.receipts:
        keys, i = files[receipt.table], position[receipt.label]
        if keys[i] is not None:
            raise InvalidInput(f"Two new partitions of dataset {change.uuid!r} have the same label {receipt.label!r}.")
        keys[i] = receipt.key
    return PartitionColumns(pa.array(labels, type=pa.string()), {t: pa.array(keys, type=pa.string()) for t, keys in files.items()})


def _new_indices(change: Change, base: Snapshot | None, schemas: Mapping[str, pa.Schema], gone: pa.Array) -> dict[str, SecondaryIndex]:
    """The indices that differ from what is stored."""
    if base is not None and not change.receipts and not len(gone):
        first = [c for c in change.index_columns if c not in base.document.indices and c not in change.built]
        return {**change.built, **{c: _new_index(change, base, schemas, gone, c) for c in first}}
    return {c: _new_index(change, base, schemas, gone, c) for c in change.index_columns}


def _new_index(change: Change, base: Snapshot | None, schemas: Mapping[str, pa.Schema], gone: pa.Array, column: str) -> SecondaryIndex:
    kind = index_type(type_of_column(schemas, column, change.uuid), column, change.uuid)
    fresh = build_index(column, kind, [(values, label) for label, values in _entries(change, column, kind).items()])
    if base is None or column not in base.indices:
        return fresh
    return merge_indices([drop_labels(base.indices[column], gone), fresh])


def _entries(change: Change, column: str, kind: pa.DataType) -> dict[str, pa.Array]:
    """The values of each new partition; those of several tables are one set."""
    found: dict[str, list[pa.Array]] = {}
    for receipt in change.receipts:
        if column in receipt.entries:
            values = receipt.entries[column]
            found.setdefault(receipt.label, []).append(values if values.type.equals(kind) else values.cast(kind))
    return {label: arrays[0] if len(arrays) == 1 else pc.unique(pa.chunked_array(arrays)) for label, arrays in found.items()}


def _new_metadata(
    change: Change,
    base: Snapshot | None,
    start: Snapshot | None,
    schemas: Mapping[str, pa.Schema],
    partitions: PartitionColumns | None,
    now: datetime,
) -> dict[str, Any]:
    old = dict(start.document.metadata) if start is not None else {}
    metadata = {k: v for k, v in old.items() if not k.startswith(OWN_PREFIX) and k not in change.forgotten}
    metadata.update(change.metadata)
    metadata.setdefault("creation_time", now.replace(tzinfo=None).isoformat(timespec="microseconds"))
    chain = base.chain if base is not None else ()
    foreign = base is not None and base.has_foreign_commit
    metadata[COMMITS_KEY] = extend_chain(chain, Commit(change.commit, None, fingerprint(partitions), now, change.cube), foreign=foreign)
    metadata[SCHEMA_KEY] = embedded_schemas(schemas)
    # Also where the dataset starts from nothing: what has been done is done.
    metadata.update(with_txn(change.txn, {} if base is None else base.document.metadata))
    return metadata
