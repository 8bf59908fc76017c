"""Writes to several datasets of a cube that stopped, or are under way: wait, abort, settle.

The page `docs/design/007-cube-writes.md` has the protocol.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from msgspec.structs import replace

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.metadata.commit_log import (
    MOVING_KEY,
    Fate,
    Ledger,
    chain_of,
    fate_of,
    ledger_of,
    pending_mark,
    removal_of,
    settled,
    taken_back,
    to_be_removed,
    vacancy,
    with_ledger,
)
from kartothek_cube.core.metadata.document import render_document
from kartothek_cube.core.metadata.naming import document_key, new_id, schema_key
from kartothek_cube.core.metadata.snapshot import PendingWrite, Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads, pause
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.documents import StoredDocument, put_document, read_document, update_schema_file
from kartothek_cube.core.snapshots.loader import (
    HiddenDocument,
    coordinator_document,
    find_state,
    remember,
    state_before,
)
from kartothek_cube.core.stores.contract import Store, VersionMismatch
from kartothek_cube.errors import CommitConflict, CommitOutcomeUnknown, DatasetNotFound, KartothekCubeError

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05  # seconds
_REMOVAL = timedelta(minutes=10)  # longer than one call of a store takes
_LONGEST_GRACE = timedelta(days=10_000)  # an age that any clock can subtract


class WriteAborted(CommitConflict):
    """Another process aborted a write to several datasets. None of it is visible, ever."""


# --- what another writer has begun ----------------------------------------------------------------


def decided_state(store: Store, uuid: str) -> Snapshot | HiddenDocument | None:
    """The newest state of a dataset, for a commit onto it.

    A write to several datasets that is pending there is waited for, and after
    ``options(patience=...)`` aborted.
    """
    patience, waited_for = current_options().patience.total_seconds(), ""
    deadline, longest = 0.0, _FIRST_PAUSE
    while True:
        state = find_state(store, uuid)
        if state is None or state.undecided is None:
            return state
        begun = removal_of(state.stored.document) if isinstance(state, HiddenDocument) else None
        is_being_removed = begun is not None and datetime.now(UTC) - begun < _REMOVAL
        if state.undecided.is_aborted and not is_being_removed:
            return state
        if state.undecided.mark.write != waited_for:  # each write has its time
            waited_for = state.undecided.mark.write
            deadline, longest = time.monotonic() + patience, _FIRST_PAUSE
        if time.monotonic() >= deadline:
            if state.undecided.is_aborted:
                raise CommitConflict(
                    f"Dataset {uuid!r} does not exist, but cleanup_cube is removing what a write has left of it, or "
                    "was interrupted. Nothing of this write is visible. Repeat it, or call cleanup_cube again."
                )
            abort_write(store, uuid, state.undecided)
            continue
        pause(longest)
        longest = min(2 * longest, _LONGEST_PAUSE)


def abort_write(store: Store, uuid: str, undecided: PendingWrite) -> Fate:
    """Let a write never commit that is pending in a dataset, unless it has committed.

    Raises
    ------
    CommitConflict
        If the coordinator is being renamed or converted.
    """
    mark = undecided.mark
    commits = [c.cube for c in chain_of(undecided.document.metadata) if c.id == mark.commit]
    datasets = commits[-1].datasets if commits and commits[-1] is not None else (uuid,)
    while True:
        stored = _stored(store, mark.coordinator)
        fate = fate_of(mark, uuid, None if stored is None else stored.document)
        if fate is not Fate.PENDING:
            return fate
        ledger = (None if stored is None else ledger_of(stored.document.metadata)) or Ledger()
        aborted = {w: uuids for w, uuids in ledger.aborted.items() if any(is_marked(store, uuid, w) for uuid in uuids)}
        aborted[mark.write] = datasets
        ledger = replace(ledger, aborted=aborted, epoch=new_id())
        with suppress(VersionMismatch):
            _put_ledger(store, mark.coordinator, stored, ledger)
            return Fate.ABORTED


def _put_ledger(store: Store, uuid: str, stored: StoredDocument | None, ledger: Ledger) -> None:
    if stored is None:
        key, document = document_key(uuid), vacancy(uuid, ledger)
    elif MOVING_KEY in stored.document.metadata:
        raise CommitConflict(
            f"Dataset {uuid!r} is being renamed or converted, so a write that stopped in another dataset of its cube "
            "cannot be aborted. Nothing of this write is visible. Repeat it after that; if nobody is at it any more, "
            "repeat that first."
        )
    else:
        key, document = stored.key, with_ledger(stored.document, ledger)
    data = render_document(document, msgpack=key.endswith(".zstd"))
    put_document(store, key, data, None if stored is None else stored.token)


def is_marked(store: Store, uuid: str, write: str) -> bool:
    """Whether a write is pending in a dataset."""
    stored = _stored(store, uuid)
    mark = None if stored is None else pending_mark(stored.document)
    return mark is not None and mark.write == write


def _stored(store: Store, uuid: str) -> StoredDocument | None:
    try:
        return read_document(store, uuid)
    except DatasetNotFound:
        return None


# --- an own write ---------------------------------------------------------------------------------


def check_not_aborted(store: Store, change: Change, state: Snapshot | HiddenDocument | None) -> None:
    """Raise `WriteAborted` unless the write of a coordinator's change can still commit.

    ``state`` is that of the coordinator, to which the change is to be committed. An abort gives its
    ledger another epoch. Without a ledger, the marks tell.
    """
    part, write = change.part, change.cube
    assert part is not None
    assert write is not None
    stored = state.stored if isinstance(state, HiddenDocument) else state
    now, then = None if stored is None else ledger_of(stored.document.metadata), part.ledger or Ledger()
    if now is None:
        is_open = part.ledger is None and all(is_marked(store, uuid, write.id) for uuid in part.others)
    else:
        lasts = ((now.last.get(u), part.befores.get(u, (then.last.get(u),))) for u in part.others)
        is_open = now.epoch == then.epoch and all(last in allowed for last, allowed in lasts)
    if not is_open:
        raise WriteAborted(
            f"The write {write.id} to {', '.join(write.datasets)} took longer than options(patience=...) of another "
            "process, which aborted a write to the cube. Nothing of this one is visible. Repeat it; if this happens "
            "often, give all processes more patience."
        )


def settle(store: Store, landed: Sequence[Snapshot]) -> list[Snapshot]:
    """Spare readers the ledger: take the word *pending* out of documents whose write has committed.

    The write is complete without it. So nothing that the store answers is an error.
    """

    def settled_snapshot(snapshot: Snapshot) -> Snapshot:
        plain = replace(snapshot, document=settled(snapshot.document))
        if snapshot.token is None:
            return plain
        data = render_document(plain.document, msgpack=plain.is_msgpack)
        with suppress(Exception):
            return remember(store, replace(plain, token=put_document(store, plain.key, data, snapshot.token)))
        return plain

    return list(map_in_threads(settled_snapshot, landed, store=store))


def abort_pending(store: Store, uuid: str) -> None:
    """Abort the write that is pending in a dataset, if any, so that it commits nowhere."""
    state = find_state(store, uuid)
    if state is not None and state.undecided is not None and not state.undecided.is_aborted:
        abort_write(store, uuid, state.undecided)


def finish_pending(store: Store, uuid: str) -> None:
    """Wait for the write that is pending in a dataset, and take it back if it takes too long.

    Then the document is free for changes that are no commits. ``options(patience=...)`` says how
    long. Errors as of `abort_write`.
    """
    state = decided_state(store, uuid)
    if state is not None and state.undecided is not None:
        roll_back(store, uuid, state.undecided.mark.write)


def settle_committed(store: Store, uuids: Iterable[str]) -> None:
    """Settle those of some datasets whose pending write has committed."""
    states = map_in_threads(lambda uuid: find_state(store, uuid), list(uuids), store=store)
    seen = [state for state in states if isinstance(state, Snapshot) and state.undecided is None]
    settle(store, [state for state in seen if pending_mark(state.document) is not None])


def roll_back(store: Store, uuid: str, write: str) -> None:
    """Replace a document with a write that will never commit by that of the state before.

    A dataset that the write was to make is left as it is, unseen, and the write is aborted, so that
    nobody waits for it.
    """
    stored = _stored(store, uuid)
    mark = None if stored is None else pending_mark(stored.document)
    if stored is None or mark is None or mark.write != write:
        return
    # Whatever the ledger says, or whether there is one: the write will not commit.
    state = state_before(store, stored, mark, Fate.ABORTED)
    if isinstance(state, HiddenDocument) and state.undecided is not None:
        abort_write(store, uuid, state.undecided)
    if not isinstance(state, Snapshot):
        return
    document = taken_back(state.document, write)
    with suppress(VersionMismatch):  # somebody else was faster
        put_document(store, state.key, render_document(document, msgpack=state.is_msgpack), state.token)
        for table, schema in state.schemas.items():
            update_schema_file(store, schema_key(uuid, table), schema)


def roll_back_all(store: Store, uuids: Iterable[str], write: str) -> None:
    """Take back what a write that will never commit has prepared, as far as the store lets us."""
    for uuid in uuids:
        with suppress(Exception):  # whoever comes next does it
            roll_back(store, uuid, write)


def swap_or_roll_back(store: Store, change: Change, swap: Callable[[], T]) -> T | None:
    """Swap a coordinator, the moment of its write; if it fails for sure, take all of it back.

    None: the write has committed although the swap failed. ``change`` is that of the coordinator;
    errors are those of the swap, and of `has_committed`.
    """
    assert change.part is not None
    assert change.cube is not None
    try:
        return swap()
    except CommitOutcomeUnknown:
        raise  # the ledger decides
    except Exception as error:
        # Our own errors are certain; whatever else the store answers is not.
        if not isinstance(error, KartothekCubeError) and has_committed(store, change, error):
            return None
        roll_back_all(store, change.part.others, change.cube.id)
        raise


def has_committed(store: Store, change: Change, error: Exception) -> bool:
    """Whether a write has committed although the swap of its coordinator failed; if not, abort it.

    A put that failed may still arrive. Only an abort, which is a swap, too, is certain. ``change``
    is that of the coordinator.

    Raises
    ------
    CommitOutcomeUnknown
        If the store cannot be asked.
    """
    assert change.part is not None
    assert change.cube is not None
    write, uuid = change.cube.id, change.part.others[0]
    try:
        state = find_state(store, uuid)
        undecided = None if state is None else state.undecided
        if undecided is not None and undecided.mark.write == write:
            return abort_write(store, uuid, undecided) is Fate.COMMITTED
        # Somebody else has aborted or settled it.
        coordinator = coordinator_document(store, change.uuid)
        if coordinator is None:
            return False
        ledger = ledger_of(coordinator.metadata) or Ledger()
        return write in ledger.last.values() or change.commit in [c.id for c in chain_of(coordinator.metadata)]
    except Exception as failure:
        raise CommitOutcomeUnknown(
            f"The store answered {error!r} to the last swap of a write to several datasets, that of {change.uuid!r}, "
            f"and cannot be asked now ({failure!r}). The write {write} is visible whole or not at all: look with "
            "`history` before writing again."
        ) from error


# --- what stopped long ago ------------------------------------------------------------------------


def finish_stopped_writes(store: Store, uuids: Iterable[str]) -> None:
    """Settle or abort the writes to several datasets that are pending in some.

    Those are aborted that are older than ``options(grace=...)``. A document that no reader sees, as
    its write was aborted, is removed.
    """
    latest = datetime.now(UTC) - min(current_options().grace, _LONGEST_GRACE)
    listed = list(uuids)
    for uuid, state in zip(
        listed, map_in_threads(lambda uuid: find_state(store, uuid), listed, store=store), strict=True
    ):
        if state is None:
            continue
        if state.undecided is None:
            if isinstance(state, Snapshot) and pending_mark(state.document) is not None:
                settle(store, [state])
            continue
        mark = state.undecided.mark
        commit = next(c for c in chain_of(state.undecided.document.metadata) if c.id == mark.commit)
        if commit.time is None or commit.time > latest or abort_write(store, uuid, state.undecided) is not Fate.ABORTED:
            continue
        roll_back(store, uuid, mark.write)
        if isinstance(state, HiddenDocument):
            # No swap removes an object. So the document says first that it is being removed, and
            # whoever makes the dataset meanwhile waits.
            stored, removal = state.stored, to_be_removed(state.stored.document, datetime.now(UTC))
            with suppress(VersionMismatch):
                data = render_document(removal, msgpack=stored.key.endswith(".zstd"))
                put_document(store, stored.key, data, stored.token)
                store.delete(stored.key)
