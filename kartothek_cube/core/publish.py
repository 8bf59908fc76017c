"""Publishing: make a change visible by one compare-and-swap of the metadata document, on the newest state that allows it."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from kartothek_cube.core.change import Change, NewState, apply_change
from kartothek_cube.core.index import INDEX_ROWS, SecondaryIndex, index_table
from kartothek_cube.core.metadata.chain import MOVING_KEY
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.history import HistoryEntry, encode_entry, entry_of, history_key
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot, make_snapshot
from kartothek_cube.core.metadata.txn import is_done
from kartothek_cube.core.naming import index_key, schema_key
from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.parquet import ParquetFormat
from kartothek_cube.core.queue import Ticket, take_turn
from kartothek_cube.core.rebase import check_indices, is_reapplied, is_same, needs_indices, rebase, refuse, without_own
from kartothek_cube.core.renew import check_staged, renewed
from kartothek_cube.core.schema_update import create_schema_file, update_schema_file
from kartothek_cube.core.snapshots import find_snapshot, is_current, load_snapshot, remember, with_indices
from kartothek_cube.core.store import Store, VersionMismatch
from kartothek_cube.core.swap import Superseded, own_key, swap
from kartothek_cube.errors import (
    AtomicityRequired,
    CommitConflict,
    ForeignWriterWarning,
    InvalidInput,
    KartothekCubeError,
    ReadOnlyStore,
)

__all__ = ["Checked", "check_publishable", "check_store_can_commit", "index_bytes", "publish", "put_index"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds
# Stands for the key of an index file that is not written yet.
_UNWRITTEN = None
_warned: set[tuple[object, ...]] = set()


def check_store_can_commit(store: Store) -> None:
    """Refuse a store that cannot be written to or cannot compare and swap, before anything is prepared for it."""
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to.")
    if not store.capabilities.conditional_put and current_options().require_atomic:
        raise AtomicityRequired(
            f"The store {store.name} cannot put a document on condition, so two writers could overwrite each other. "
            "If there is certainly one writer, say options(require_atomic=False)."
        )


class Checked(NamedTuple):
    """A change as it was applied without writing anything: to the state ``found``, which is ``loaded`` with its indices."""

    change: Change
    found: Snapshot | None
    loaded: Snapshot | None
    step: _Step


def check_publishable(store: Store, change: Change, base: Snapshot | None) -> Checked | None:
    """Raise what `publish` would raise now, without writing anything. What was found spares `publish` the work where nothing has come between."""
    newest = base if base is not None and is_current(store, base) else find_snapshot(store, change.uuid)
    if _is_done(change, newest):
        return None
    loaded = _loaded(store, newest, [change])
    return Checked(change, newest, loaded, _fold_one(store, Ticket(change, base, 0), loaded))


def publish(store: Store, change: Change, base: Snapshot | None, checked: Checked | None = None) -> Snapshot:
    """Publish a change that was made for the snapshot ``base``, or onto the newest one where that came since and the two go together.

    Order of writes: for a new dataset the schema file; index files under fresh keys and the history entry; the document, by compare-and-swap; the
    schema file where it differs. What others of this process publish to the dataset meanwhile shares one swap.

    Returns
    -------
    Snapshot
        The dataset as the change left it, or a later state that has it; ``result`` says what was done. A change whose ``txn`` the dataset has already is
        skipped, whatever else it says.

    Raises
    ------
    CommitConflict
        If the change contradicts one that came first, or others came first ``commit_retries`` times. It is certainly not visible.
    CorruptDocument
        If the change has a number, and those that the document has cannot be read.
    StagedFilesLost
        If files of the change, staged more than half the grace period ago, are gone. It is certainly not visible. Those that are there are copied.
    CommitOutcomeUnknown
        If the store does not say whether the document was written and cannot be asked. Nothing is deleted.
    AtomicityRequired
        If the store cannot compare and swap.
    """
    check_store_can_commit(store)
    ticket = Ticket(change, base, current_options().commit_retries, checked=checked)
    return take_turn((store.identity, change.uuid), ticket, lambda tickets: _publish_all(store, tickets))


def _publish_all(store: Store, tickets: Sequence[Ticket]) -> None:
    """Finish every ticket."""
    for attempt in count():
        waiting = [ticket for ticket in tickets if not ticket.done]
        if not waiting:
            return
        try:
            _attempt(store, waiting, attempt)
        except Superseded:
            _count_try(store, waiting)
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt)))  # noqa: S311 - no secret
        except Exception as error:  # of the store, so of all
            for ticket in waiting:
                if not ticket.done:
                    ticket.error = error


def _count_try(store: Store, waiting: Iterable[Ticket]) -> None:
    for ticket in waiting:
        ticket.tries += 1
        if not ticket.done and ticket.tries > ticket.retries:
            _settle(ticket, lambda t: _refuse_again(store, t))


def _refuse_again(store: Store, ticket: Ticket) -> None:
    newest = None
    with suppress(KartothekCubeError, OSError):
        newest = find_snapshot(store, ticket.change.uuid)
    refuse(ticket.change, ticket.base, newest, f"others were faster {ticket.tries} times, and commit_retries is {ticket.retries}")


def _settle(ticket: Ticket, action: Callable[[Ticket], object]) -> None:
    """Let an error of one change be that of its ticket alone."""
    try:
        action(ticket)
    except Exception as error:
        ticket.error = error


@dataclass(frozen=True, slots=True)
class _Step:
    """One change on its base: the state after it, what history keeps of it."""

    change: Change
    base: Snapshot | None
    state: NewState
    entry: HistoryEntry


def _attempt(store: Store, waiting: Sequence[Ticket], attempt: int) -> None:
    """Publish what goes onto the newest state; tickets that do not are finished with their conflict."""
    newest = _newest(store, waiting, attempt)
    for ticket in waiting:
        _note_landed(ticket, newest)
        if not ticket.done:
            _settle(ticket, lambda t: _note_done(t, newest))
    for ticket in waiting:
        if not ticket.done:
            _settle(ticket, lambda t: _renew(store, t, newest))
    waiting = [ticket for ticket in waiting if not ticket.done]
    if waiting:
        checked = waiting[0].checked
        known = checked is not None and checked.found is newest and len(waiting) == 1
        _publish_onto(store, checked.loaded if known else _loaded(store, newest, [t.change for t in waiting]), waiting)


def _newest(store: Store, waiting: Sequence[Ticket], attempt: int) -> Snapshot | None:
    """The base where it is still the newest state: a lone first attempt takes one look."""
    first = waiting[0]
    # Where files are partitions without being listed, others may have come although the document is the same.
    moved = first.base is not None and (first.base.document.partitions is None or not is_current(store, first.base))
    if attempt or len(waiting) > 1 or moved:
        return find_snapshot(store, first.change.uuid)
    return first.base


def _note_landed(ticket: Ticket, newest: Snapshot | None) -> None:
    """Of a change whose turn was interrupted."""
    if newest is not None and ticket.change.commit in [c.id for c in newest.chain]:
        ticket.landed = replace(newest, result=CommitResult(ticket.change.commit, ticket.tries + 1))


def _is_done(change: Change, state: Snapshot | None) -> bool:
    return state is not None and is_done(change.txn, state.document.metadata)


def _note_done(ticket: Ticket, state: Snapshot | None) -> None:
    """Of a numbered write that the state has; its files, which may be lost, do not matter."""
    if state is not None and _is_done(ticket.change, state):
        ticket.landed = replace(state, result=CommitResult(ticket.change.commit, ticket.tries + 1, skipped=True))


def _renew(store: Store, ticket: Ticket, newest: Snapshot | None) -> None:
    # Where files are partitions without being listed, none is garbage.
    if newest is None or newest.document.partitions is not None:
        ticket.change = renewed(store, ticket.change)


def _loaded(store: Store, newest: Snapshot | None, changes: Iterable[Change]) -> Snapshot | None:
    """The state with the indices that the changes touch."""
    if newest is None or not any(map(needs_indices, changes)):
        return newest
    return with_indices(store, newest, sorted(newest.secondary_columns))


def _publish_onto(store: Store, newest: Snapshot | None, waiting: Sequence[Ticket]) -> None:
    steps: list[tuple[Ticket, _Step]] = []
    twice: list[Ticket] = []
    snapshot = newest
    for ticket in waiting:
        before = snapshot
        if steps and _is_done(ticket.change, before):  # by one that shares this swap, and is not there before it is
            twice.append(ticket)
            continue
        _settle(ticket, lambda t, before=before: steps.append((t, _fold_one(store, t, before))))  # type: ignore[misc]
        if not ticket.done and len(waiting) > 1:
            snapshot = _unwritten_snapshot(steps[-1][1])
    if not steps:
        return
    landed = _write(store, newest, [step for _, step in steps])
    for ticket, step in steps:
        reapplied = is_reapplied(ticket.change, ticket.base, step.base)
        ticket.landed = replace(landed, result=CommitResult(step.change.commit, ticket.tries + 1, reapplied))
    for ticket in twice:
        _note_done(ticket, landed)


def _fold_one(store: Store, ticket: Ticket, newest: Snapshot | None) -> _Step:
    """One change on the newest state; raises why it does not go there."""
    change, base, checked = ticket.change, ticket.base, ticket.checked
    _check_free(change, newest)
    check_staged(store, change)
    if checked is not None and checked.change is change and checked.loaded is newest:
        known: _Step = checked.step
        return known
    if newest is not None and newest.has_foreign_commit:
        _warn_of_foreign(store, newest)
    newest, now = without_own(change, base, newest), datetime.now(UTC)
    change, state = _applied(change, base, newest, now)
    entry = entry_of(change.commit, now, newest, pa.array(change.labels, type=pa.string()), state.gone, change.cube)
    return _Step(change, newest, state, entry)


def _applied(change: Change, base: Snapshot | None, newest: Snapshot | None, now: datetime) -> tuple[Change, NewState]:
    """What fitted the base and does not fit the newest state is a conflict, not bad input."""
    rebased = rebase(change, base, newest)
    try:
        check_indices(rebased, newest)
        return rebased, apply_change(rebased, newest, now)
    except InvalidInput as error:
        if is_same(base, newest):
            raise
        try:
            refuse(change, base, newest, str(error))
        except CommitConflict as conflict:
            raise conflict from error


def _check_free(change: Change, newest: Snapshot | None) -> None:
    if newest is not None and MOVING_KEY in newest.document.metadata:
        raise CommitConflict(
            f"Dataset {change.uuid!r} is being renamed, or the encoding of {newest.key!r} is being changed. If nobody does so now, it was interrupted: "
            "repeat it, or call convert_metadata_format with the present encoding to free the dataset. Nothing of this write is visible."
        )


def _warn_of_foreign(store: Store, newest: Snapshot) -> None:
    """Once for each: kartothek and plateau overwrite what was committed while they worked."""
    if not newest.chain:
        return  # none of ours was there before
    seen = (store.identity, newest.uuid, newest.chain[-1].id, newest.token)
    if seen not in _warned:
        _warned.add(seen)
        warnings.warn(
            f"Dataset {newest.uuid!r} was changed by a library without commit ids (kartothek, plateau) after commit {newest.chain[-1].id}. "
            "Such a writer removes what others commit while it works; verify_dataset finds what it left behind.",
            ForeignWriterWarning,
            stacklevel=2,
        )


def _unwritten_snapshot(step: _Step) -> Snapshot:
    """The state after a change that shares its swap with the next one."""
    document = replace(step.state.document, indices={**step.state.document.indices, **dict.fromkeys(step.state.indices, _UNWRITTEN)})
    # Without a version, so that nothing takes it for what is stored.
    return _snapshot(step, document, own_key(step.change, step.base), None)


def _snapshot(step: _Step, document: Document, key: str, token: Hashable) -> Snapshot:
    """The state after a change, of which nothing is decoded that the state before it has."""
    known = step.base.values if step.base is not None and step.state.appends else None
    return make_snapshot(document, key, token, step.state.schemas, known=known).with_indices(_known_indices(step))


def _known_indices(step: _Step) -> dict[str, SecondaryIndex]:
    base, change = step.base, step.change
    old = {} if base is None or change.replace else {c: index for c, index in base.indices.items() if c not in change.dropped}
    return {**old, **step.state.indices}


def _write(store: Store, newest: Snapshot | None, steps: Sequence[_Step]) -> Snapshot:
    """All writes of one swap."""
    last = steps[-1]
    uuid, schemas = last.change.uuid, last.state.schemas
    if newest is None:
        for table, schema in schemas.items():
            create_schema_file(store, schema_key(uuid, table), schema)
    document = _put_companions(store, steps)
    token = swap(store, last.change, newest, document)
    if token is None:
        with suppress(Exception):  # the commit has landed, whatever the store answers now
            return load_snapshot(store, uuid)
        return _snapshot(last, document, own_key(last.change, newest), None)
    for table, schema in schemas.items():
        with suppress(Exception):  # the commit has landed; whoever commits next looks at this copy of the schema again
            update_schema_file(store, schema_key(uuid, table), schema)
    return remember(store, _snapshot(last, document, own_key(last.change, newest), token))


def _put_companions(store: Store, steps: Sequence[_Step]) -> Document:
    """Write index files and history entries, and return the document that names the index files."""
    last, now = steps[-1], datetime.now(UTC).replace(tzinfo=None)
    known, document = _known_indices(last), last.state.document
    columns = sorted({*last.state.indices, *(c for c, key in document.indices.items() if key is _UNWRITTEN)})
    tasks = [lambda c=c: put_index(store, last.change.uuid, known[c], now) for c in columns]
    tasks += [lambda e=step.entry: _put_entry(store, last.change.uuid, e) for step in steps]
    keys = list(map_in_threads(lambda task: task(), tasks, store=store))[: len(columns)]
    return replace(document, indices={**document.indices, **dict(zip(columns, keys, strict=True))})


def _put_entry(store: Store, uuid: str, entry: HistoryEntry) -> str:
    # The key is of this commit alone; an earlier attempt that did not land is replaced.
    key = history_key(uuid, entry.commit)
    store.put(key, encode_entry(entry))
    return key


def index_bytes(index: SecondaryIndex) -> memoryview:
    """The index file."""
    return memoryview(ParquetFormat(compression="ZSTD", chunk_size=INDEX_ROWS).encode(index_table(index)))


def put_index(store: Store, uuid: str, index: SecondaryIndex, when: datetime) -> str:
    """Write an index file under a key that nobody else has: where it exists, the time moves by a microsecond."""
    data = index_bytes(index)
    while True:
        key = index_key(uuid, index.column, when)
        if not store.capabilities.conditional_put:
            store.put(key, data)
            return key
        try:
            store.put_if(key, data, None)
        except VersionMismatch:
            when += timedelta(microseconds=1)
        else:
            return key
