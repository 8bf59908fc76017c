"""Writes to several datasets of a cube that stopped, or are under way: wait, abort, settle.

The page `docs/design/007-cube-writes.md` has the protocol.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.schema_sync import update_schema_file
from kartothek_cube.core.metadata.commit_log import MOVING_KEY, chain_of
from kartothek_cube.core.metadata.cube_writes import (
    CubeMark,
    Fate,
    Ledger,
    fate_of,
    ledger_of,
    pending_mark,
    settled,
    taken_back,
    vacancy,
    with_ledger,
)
from kartothek_cube.core.metadata.document import render_document
from kartothek_cube.core.metadata.naming import document_key, new_id, schema_key
from kartothek_cube.core.metadata.snapshot import Snapshot, Undecided
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.document_store import StoredDocument, put_document, read_document
from kartothek_cube.core.snapshots.loader import Unseen, find_state, remember
from kartothek_cube.core.stores.contract import Store, VersionMismatch
from kartothek_cube.errors import CommitConflict, DatasetNotFound

__all__ = [
    "WriteAborted",
    "abort_write",
    "check_not_aborted",
    "decided_state",
    "finish_stopped_writes",
    "put_back",
    "settle",
]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.25  # seconds
_LONGEST_GRACE = timedelta(days=10_000)  # an age that any clock can subtract


class WriteAborted(CommitConflict):
    """Another process aborted a write to several datasets. None of it is visible, ever."""


# --- what another writer has begun ----------------------------------------------------------------


def decided_state(store: Store, uuid: str) -> Snapshot | Unseen | None:
    """The newest state of a dataset, for a commit onto it.

    A write to several datasets that is pending there is waited for, and after
    ``options(patience=...)`` aborted.
    """
    patience, waited_for = current_options().patience.total_seconds(), ""
    deadline, pause = 0.0, _FIRST_PAUSE
    while True:
        state = find_state(store, uuid)
        if state is None or state.undecided is None or state.undecided.is_aborted:
            return state
        if state.undecided.mark.write != waited_for:  # each write has its time
            waited_for = state.undecided.mark.write
            deadline, pause = time.monotonic() + patience, _FIRST_PAUSE
        if time.monotonic() >= deadline:
            abort_write(store, uuid, state.undecided)
            continue
        time.sleep(random.uniform(0, pause))  # noqa: S311 - no secret
        pause = min(2 * pause, _LONGEST_PAUSE)


def abort_write(store: Store, uuid: str, undecided: Undecided) -> Fate:
    """Let a write never commit that is pending in a dataset, unless it has committed.

    Raises
    ------
    CommitConflict
        If the coordinator is being renamed or converted.
    """
    mark = undecided.mark
    while True:
        stored = _stored(store, mark.coordinator)
        fate = fate_of(mark, uuid, None if stored is None else stored.document)
        if fate is not Fate.PENDING:
            return fate
        ledger = (None if stored is None else ledger_of(stored.document.metadata)) or Ledger()
        aborted = {write: uuids for write, uuids in ledger.aborted.items() if _is_marked(store, write, uuids)}
        aborted[mark.write] = _participants(undecided)
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


def _participants(undecided: Undecided) -> tuple[str, ...]:
    """The datasets that may have a mark of a write."""
    commits = [c for c in chain_of(undecided.document.metadata) if c.id == undecided.mark.commit]
    return commits[-1].cube.datasets if commits and commits[-1].cube is not None else (undecided.document.uuid,)


def _is_marked(store: Store, write: str, uuids: Iterable[str]) -> bool:
    """Whether a write is pending in one of these datasets."""
    return any(_mark(store, uuid, write) is not None for uuid in uuids)


def _mark(store: Store, uuid: str, write: str) -> CubeMark | None:
    stored = _stored(store, uuid)
    mark = None if stored is None else pending_mark(stored.document)
    return mark if mark is not None and mark.write == write else None


def _stored(store: Store, uuid: str) -> StoredDocument | None:
    try:
        return read_document(store, uuid)
    except DatasetNotFound:
        return None


# --- an own write ---------------------------------------------------------------------------------


def check_not_aborted(store: Store, change: Change, state: Snapshot | Unseen | None) -> None:
    """Raise `WriteAborted` if the write of a coordinator's change can commit no more.

    ``state`` is that of the coordinator, read before.
    """
    assert change.part is not None
    assert change.cube is not None
    write, stored = change.cube.id, state.stored if isinstance(state, Unseen) else state
    ledger = None if stored is None else ledger_of(stored.document.metadata)
    is_aborted = ledger is not None and write in ledger.aborted
    others = [] if is_aborted else change.part.others
    if is_aborted or not all(map_in_threads(lambda uuid: _mark(store, uuid, write), others, store=store)):
        raise WriteAborted(
            f"The write {write} to {', '.join(change.cube.datasets)} took longer than options(patience=...) of another "
            "process, which aborted it. Nothing of it is visible. Repeat it."
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


def put_back(store: Store, uuid: str, write: str) -> None:
    """Replace a document with a write that will never commit by that of the state before.

    A dataset that the write was to make is left as it is, unseen, and the write is aborted, so that
    nobody waits for it.
    """
    state = find_state(store, uuid)
    if state is None or state.undecided is None or state.undecided.mark.write != write:
        return
    if isinstance(state, Unseen):
        abort_write(store, uuid, state.undecided)
        return
    document = taken_back(state.document, write)
    with suppress(VersionMismatch):  # somebody else was faster
        put_document(store, state.key, render_document(document, msgpack=state.is_msgpack), state.token)
        for table, schema in state.schemas.items():
            update_schema_file(store, schema_key(uuid, table), schema)


# --- what stopped long ago ------------------------------------------------------------------------


def finish_stopped_writes(store: Store, uuids: Iterable[str]) -> None:
    """Settle or abort the writes to several datasets that are pending in some.

    Those are aborted that are older than ``options(grace=...)``. A document that no reader sees, as
    its write was aborted, is removed.
    """
    latest = datetime.now(UTC) - min(current_options().grace, _LONGEST_GRACE)
    for uuid in uuids:
        state = find_state(store, uuid)
        if state is None:
            continue
        if state.undecided is None:
            if isinstance(state, Snapshot) and pending_mark(state.document) is not None:
                settle(store, [state])
            continue
        mark = state.undecided.mark
        commit = next(c for c in chain_of(state.undecided.document.metadata) if c.id == mark.commit)
        if commit.time is not None and commit.time <= latest:
            _take_back(store, uuid, state)


def _take_back(store: Store, uuid: str, state: Snapshot | Unseen) -> None:
    assert state.undecided is not None
    if abort_write(store, uuid, state.undecided) is Fate.COMMITTED:
        return
    put_back(store, uuid, state.undecided.mark.write)
    # Nobody else has a reason to change it now: whoever makes the dataset replaces it.
    if isinstance(state, Unseen) and not store.changed(state.stored.key, state.stored.token):
        store.delete(state.stored.key)
