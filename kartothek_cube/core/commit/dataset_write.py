"""A write to one dataset: its begin, its metadata, its commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, Self, TypeVar

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.commit.change import Change, OnConflict, check_on_conflict
from kartothek_cube.core.commit.commit import commit_change, swap_tells
from kartothek_cube.core.metadata.commit_log import Txn, is_applied, parse_txn
from kartothek_cube.core.metadata.document import check_user_metadata
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.loader import find_snapshot, is_current, last_seen, with_indices
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.core.stores.uploads import Outdated, UploadingStore, uploading
from kartothek_cube.core.write.layout import Scope, labels_in_scope, parse_scope
from kartothek_cube.core.write.stage import StagedWrite
from kartothek_cube.errors import CommitConflict, InvalidType

T = TypeVar("T")
Merger = Callable[[list[dict[str, Any]]], dict[str, Any]]


class DatasetWrite(Struct, frozen=True):
    """A write that has begun: where it starts from, and what its commit does beside adding rows.

    Attributes
    ----------
    base : Snapshot | None
        The dataset when the write began. Later commits of others may be conflicts.
    metadata, merger
        The arguments ``metadata`` and ``metadata_merger``.
    delete_scope : tuple
        The argument of that name, which selects the partitions to remove.
    scope : Scope
        The same, parsed for the base.
    on_conflict : {"raise", "reapply"}
        What to do if another commit changed what this one removes or replaces.
    creates : bool
        Fail if another writer creates the dataset first.
    txn : Txn | None
        The number of the write.
    id : str
        The id of its commit.
    """

    store: Store
    uuid: str
    base: Snapshot | None
    metadata: Any = None
    merger: Merger | None = None
    delete_scope: tuple[Any, ...] = ()
    scope: Scope = ()
    on_conflict: OnConflict = "raise"
    creates: bool = False
    txn: Txn | None = None
    id: str = field(default_factory=new_id)

    @classmethod
    def begin(
        cls,
        store: Store,
        uuid: str,
        metadata: object = None,
        merger: Any = None,
        on_conflict: object = "raise",
        *,
        delete_scope: object = None,
        creates: bool = False,
        txn: object = None,
        assumes: bool = False,
    ) -> Self:
        """Read the present state and check the arguments, before any row is looked at.

        If it ``assumes`` that the state that this process saw last is the present one, the store is
        asked while files are sent; see `written`.
        """
        # First: a store that cannot commit would keep the files as garbage.
        check_store_can_commit(store)
        mode, number = check_on_conflict(on_conflict), parse_txn(txn)
        if merger is not None and not callable(merger):
            raise InvalidType(
                f"metadata_merger for dataset {uuid!r} is called with a list of dicts and returns one; "
                f"{type(merger).__name__} cannot be called."
            )
        if not callable(metadata):
            user_metadata(metadata, uuid)
        base = last_seen(store, uuid) if assumes else None
        if base is not None and isinstance(store, UploadingStore) and swap_tells(store, base):
            store.assume(partial(is_current, store, base))
        else:
            base = find_snapshot(store, uuid)
        begun = cls(store, uuid, base, metadata, merger, (), (), mode, creates, number)
        scopes = as_list(delete_scope, "delete_scope")
        # What was applied may have a scope that the dataset of today does not know.
        return begun if begun.skipped is not None else begun.removing(scopes)

    def removing(self, delete_scope: Sequence[Any]) -> Self:
        """The write, also removing the partitions in a scope."""
        # A scope was made for a state, so no other writer may create the dataset meanwhile.
        creates, scope = self.creates or bool(delete_scope), parse_scope(list(delete_scope), self.base)
        return replace(self, delete_scope=tuple(delete_scope), scope=scope, creates=creates)

    @property
    def skipped(self) -> Snapshot | None:
        """The dataset as it is, if a write with this number was applied; else None."""
        if self.base is None or not is_applied(self.txn, self.base.document.metadata):
            return None
        return replace(self.base, result=CommitResult(new_id(), 1, skipped=True))

    def labels(self, state: Snapshot) -> pa.Array:
        """The labels to be removed from any state of the dataset."""
        return labels_in_scope(state, parse_scope(list(self.delete_scope), state))

    def commit(self, staged: StagedWrite) -> Snapshot:
        """Commit the staged rows, and the removal of the partitions in the scope."""
        request = staged.request
        # A callable is called once, however often the commit is tried.
        given = user_metadata(self.metadata, self.uuid)

        def merge(state: Snapshot | None) -> tuple[dict[str, Any], frozenset[str]]:
            start = None if request.replace else state
            return merge_metadata(start, given, self.merger, len(staged.receipts), self.uuid)

        values, forgotten = merge(self.base)
        change = Change(
            self.uuid,
            staged.receipts,
            staged.schemas,
            request.partition_on,
            request.index_columns,
            metadata=values,
            forgotten=forgotten,
            removed=removed_labels(self.store, self.base, self.scope),
            scope=self.labels if self.scope else None,
            merge=None if self.merger is None else merge,
            replace=request.replace,
            creates=self.creates,
            add_columns=request.add_columns,
            msgpack=request.msgpack,
            on_conflict=self.on_conflict,
            commit=self.id,
            txn=self.txn,
            records=request.records(staged.schemas),
        )
        return commit_change(self.store, change, self.base)


def written(store: Store, attempt: Callable[[Store, bool], T], *, may_repeat: bool) -> T:
    """The result of a write to a store that sends files in threads.

    A far store is not waited for at first, if the attempt can be repeated: it is told to assume the
    state that this process saw last, and is called again if another one was the newest.
    """
    if may_repeat and store.is_remote:
        with suppress(Outdated), uploading(store) as opened:
            return attempt(opened, True)
    with uploading(store) as opened:
        return attempt(opened, False)


def removed_labels(store: Store, base: Snapshot | None, scope: Scope) -> pa.Array:
    """Labels to be removed from the state before."""
    if base is None:
        return pa.array([], type=pa.string())
    needed = sorted({clause.column for clauses in scope for clause in clauses} & base.secondary_columns)
    return labels_in_scope(with_indices(store, base, needed), scope)


def merge_metadata(
    start: Snapshot | None, given: Mapping[str, Any], merger: Merger | None, partitions: int, uuid: str
) -> tuple[dict[str, Any], frozenset[str]]:
    """The user metadata to be set, and the names to be removed."""
    current = dict(start.document.user_metadata) if start is not None else {}
    merged = current
    if merger is not None:
        # As in kartothek: the present metadata and one empty dict per new partition. Names that the
        # merger leaves out are removed.
        merged = merger([deepcopy(current), *({} for _ in range(partitions))])
        if not isinstance(merged, dict):
            raise InvalidType(
                f"The metadata_merger for dataset {uuid!r} should return a dict but returned {type(merged).__name__}."
            )
    after = {**merged, **given}
    # The argument is set even where the value is the same: another commit may be changing it.
    changed = {k: v for k, v in after.items() if k in given or k not in current or current[k] is not v}
    return check_user_metadata(changed, f"dataset {uuid!r}"), frozenset(current) - set(after) - {"creation_time"}


def user_metadata(metadata: object, uuid: str) -> dict[str, Any]:
    """The argument ``metadata``, called if it is callable, checked."""
    value = metadata() if callable(metadata) else metadata
    return {} if value is None else check_user_metadata(value, f"dataset {uuid!r}")


def repeat_on_conflict(attempt: Callable[[], T]) -> T:
    """Repeat the build of an index after conflicts, up to ``commit_retries`` times."""
    # An index has to cover exactly the partitions from which it was built.
    for _ in range(current_options().commit_retries):
        with suppress(CommitConflict):
            return attempt()
    return attempt()
