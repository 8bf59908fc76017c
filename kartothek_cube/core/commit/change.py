"""A change of one dataset as a value: what it adds, removes and sets, and how it may be rebased."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.metadata.commit_log import CubeCommit, CubePart, Txn
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.naming import document_key, new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import FileStatistics
from kartothek_cube.core.write.receipt import Receipt
from kartothek_cube.errors import InvalidInput

__all__ = ["Change", "OnConflict", "check_on_conflict"]

OnConflict: TypeAlias = Literal["raise", "reapply"]


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
class Change:
    """Staged partitions, removed labels and metadata, to be committed onto a snapshot.

    Attributes
    ----------
    uuid : str
        The dataset.
    receipts : tuple of Receipt
        Staged files. If the dataset already has a label, the new files replace that partition.
    schemas : Mapping[str, pyarrow.Schema]
        Table → columns of the new rows, in stored types. Other tables stay as they are.
    partition_keys, index_columns : tuple of str
        Those of the dataset after the change.
    metadata : Mapping[str, Any]
        User metadata to be set.
    forgotten : frozenset of str
        User metadata to be removed.
    removed : pyarrow.Array
        Labels of the partitions to be removed.
    scope : Callable, optional
        Returns the labels to be removed from any state of the dataset whose indices are loaded.
        None: ``removed``, whatever the state.
    merge : Callable, optional
        Returns ``metadata`` and ``forgotten`` for any state (None: no dataset). Without it both are
        the same for every state.
    places : Mapping[str, str]
        New label → the label of the base, kept or removed, after which it comes; ``""``: before
        all. Others come last.
    on_conflict : {"raise", "reapply"}
        Whether to fail if another commit changed what this one removes or replaces.
    built : Mapping[str, SecondaryIndex]
        Whole new indices, built for exactly the partitions of the base.
    dropped : frozenset[str]
        Columns whose indices are dropped; none of them is among ``index_columns``.
    replace : bool
        Drop the old partitions, indices, schema and user metadata first.
    creates : bool
        For a new dataset: fail if another writer created it since. False: add the rows to it.
    explicit : bool
        False: a header, whose document lists no partitions.
    add_columns : bool
        Add columns that the dataset lacks to its schema.
    msgpack : bool
        The encoding of a new document; an existing document keeps its own.
    commit : str
        Id of the commit.
    cube : CubeCommit | None
        The write to a cube that this change is a part of.
    part : CubePart | None
        The part of the dataset in that write.
    time : datetime | None
        The time of the commit in UTC; None: when it is applied.
    data_change : bool
        False if the new files hold the rows of the removed partitions.
    txn : Txn | None
        The number of the write. It is skipped if the dataset has this number or a later one.
    statistics : FileStatistics | None
        Statistics of files that the dataset has already.
    records : Mapping[str, str | None]
        Entries of the document about its state to be set, of `STATE_KEYS`; None: to be removed.
    dropped_columns : frozenset of str
        Columns to be removed from the schemas. Files keep them.
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
    commit: str = field(default_factory=new_id)
    cube: CubeCommit | None = None
    part: CubePart | None = None
    time: datetime | None = None
    data_change: bool = True
    txn: Txn | None = None
    statistics: FileStatistics | None = None
    records: Mapping[str, str | None] = field(default_factory=dict)
    dropped_columns: frozenset[str] = frozenset()

    @property
    def labels(self) -> list[str]:
        """Labels of the new partitions, in order."""
        return list(dict.fromkeys(r.label for r in self.receipts))

    @property
    def is_prepared(self) -> bool:
        """Whether the commit is seen only once the coordinator of its write has committed."""
        return self.part is not None and self.part.coordinator != self.uuid

    @property
    def is_coordinator(self) -> bool:
        """Whether the commit is the moment of a write to several datasets."""
        return self.part is not None and self.part.coordinator == self.uuid

    def key_onto(self, base: Snapshot | None) -> str:
        """Key of the document after the change: an existing document keeps its encoding."""
        return document_key(self.uuid, msgpack=self.msgpack) if base is None else base.key

    def describe(self) -> str:
        """One line for error messages."""
        return f"commit {self.commit} ({pluralize(len(self.labels), 'partition')} added, {len(self.removed)} removed)"
