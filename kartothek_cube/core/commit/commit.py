"""Committing: make a change visible by one compare-and-swap of the metadata document.

In order:

- group commit: threads queue, the first commits for the others
- staged files that have waited long are copied: garbage collection may delete them
- committing
"""

from __future__ import annotations

import dataclasses
import os
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.commit.change import (
    UNWRITTEN,
    AppliedChange,
    Change,
    conflict,
    needs_indices,
    rebase_and_apply,
)
from kartothek_cube.core.commit.cube_writes import check_not_aborted, decided_state
from kartothek_cube.core.delta.publication import publish_after_commit
from kartothek_cube.core.io.formats import file_suffix
from kartothek_cube.core.metadata.commit_log import LENGTH, is_applied, stored_chain
from kartothek_cube.core.metadata.document import DELTA_KEY, Document, render_document
from kartothek_cube.core.metadata.history_entry import HistoryEntry, encode_entry, history_key
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.naming import document_key, index_key, new_id, schema_key
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY, concat_statistics
from kartothek_cube.core.runtime.executor import at_once, map_in_threads, pause
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.telemetry import name_commit
from kartothek_cube.core.snapshots.documents import (
    SchemaFile,
    SwapResult,
    compare_and_swap,
    create_schema_file,
    look_at_schema_file,
    update_schema_file,
)
from kartothek_cube.core.snapshots.loader import (
    HiddenDocument,
    find_snapshot,
    index_bytes,
    is_current,
    load_snapshot,
    read_entry,
    remember,
    with_indices,
)
from kartothek_cube.core.snapshots.statistics import written_reference
from kartothek_cube.core.stores.contract import Store, VersionMismatch, check_store_can_commit
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    ForeignWriterWarning,
    KeyNotFound,
    StagedFilesLost,
)

# So many bytes of data files are sent beside the other files of a commit.
_SENT_IN_TURN = 2**20
# Indices of fewer values are encoded faster than threads start.
_MANY_VALUES = 100_000
# Commits of one swap: few enough that the chain still names all of them after the swap of another
# group.
_LARGEST_GROUP = LENGTH // 2


class WrittenAhead(NamedTuple):
    """What a swap needs, and what does not depend on it.

    ``document`` names new index and statistics files; ``twin`` is as of `_find_stale_twin`;
    ``schema_files`` are as they were, by table.
    """

    document: Document
    twin: Hashable
    schema_files: Mapping[str, SchemaFile | None]


class PreparedCommit(Struct, frozen=True):
    """A change that was already applied to a state of its dataset.

    It spares the work at the commit, if the dataset has not changed since.

    Attributes
    ----------
    change : Change
        The original change.
    newest : Snapshot | None
        The newest state at that time.
    loaded : Snapshot | None
        The same state with the indices that the change touches.
    applied : AppliedChange
        The state after the change.
    ahead : WrittenAhead | None
        The files beside the document, if they were written already.
    """

    change: Change
    newest: Snapshot | None
    loaded: Snapshot | None
    applied: AppliedChange
    ahead: WrittenAhead | None = None


class PendingCommit(Struct, frozen=True, eq=False):
    """A change that waits to be committed.

    Attributes
    ----------
    change : Change
        The change.
    base : Snapshot | None
        The state for which it was made.
    retries : int
        How often to try again when other writers were faster.
    prepared : PreparedCommit | None
        The result of `prepare_commit`.
    outcome : Future
        The snapshot after the commit, or its error. The leader of the group sets it, exactly once.
    flush : Callable
        Waits until the files of the change are in the store.
    """

    change: Change
    base: Snapshot | None
    retries: int
    prepared: PreparedCommit | None = None
    flush: Callable[[], None] = lambda: None
    outcome: Future[Snapshot] = field(default_factory=Future)

    @property
    def is_retried(self) -> bool:
        """Whether an earlier leader was interrupted, who may have committed the change."""
        return self.outcome.running()

    def begins_without_look(self, store: Store) -> bool:
        """Whether the base is tried before anybody asks whether it is the newest state."""
        if self.base is None or self.prepared is not None or self.is_retried:
            return False
        return swap_tells(store, self.base)

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """Make an error inside the block the outcome of this commit, so that others go on."""
        try:
            yield
        except Exception as error:
            self.outcome.set_exception(error)


class CommitQueue(Struct):
    """The commits of one dataset that wait.

    The thread that holds ``turn`` is the leader; ``members`` counts the threads in the queue.
    """

    # Reentrant: a callback of a change may commit to the same dataset.
    turn: Any = field(default_factory=threading.RLock)
    waiting: list[PendingCommit] = field(default_factory=list)
    members: int = 0


class _CommitQueues:
    """The queues of this process, by store and dataset. Safe for threads."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all queues."""
        # With a new lock: after a fork, the thread that held the old one may not exist.
        self._queues: dict[Hashable, CommitQueue] = {}
        self._guard = threading.Lock()

    def join(self, key: Hashable, pending: PendingCommit) -> CommitQueue:
        with self._guard:
            queue = self._queues.setdefault(key, CommitQueue())
            queue.waiting.append(pending)
            queue.members += 1
            return queue

    def waiting(self, key: Hashable) -> list[PendingCommit]:
        with self._guard:
            return list(self._queues[key].waiting) if key in self._queues else []

    def take(self, queue: CommitQueue, first: PendingCommit) -> list[PendingCommit]:
        """The next group: the leader's own commit first, then those that have waited longest.

        A prepared commit is alone: it may be taken back without any other.
        """
        with self._guard:
            others = [pending for pending in queue.waiting if pending is not first]
            shares = [p for p in others if not (p.change.is_prepared or first.change.is_prepared)]
            group = [first, *shares[: _LARGEST_GROUP - 1]]
            queue.waiting = [pending for pending in others if pending not in group]
            return group

    def give_back(self, queue: CommitQueue, group: list[PendingCommit]) -> None:
        with self._guard:
            queue.waiting[:0] = group
        for pending in group:  # the state of its future tells the next leader
            if not pending.is_retried:
                pending.outcome.set_running_or_notify_cancel()

    def leave(self, key: Hashable, queue: CommitQueue, pending: PendingCommit) -> None:
        with self._guard:
            queue.waiting = [other for other in queue.waiting if other is not pending]
            queue.members -= 1
            if not queue.members:
                self._queues.pop(key, None)


_queues = _CommitQueues()

if hasattr(os, "register_at_fork"):
    # A forked child has no thread that would finish a turn from before the fork.
    os.register_at_fork(after_in_child=_queues.clear)


def group_commit(
    key: Hashable,
    pending: PendingCommit,
    commit_all: Callable[[list[PendingCommit]], None],
    *,
    waits: bool = True,
) -> Snapshot:
    """Return the outcome of a commit.

    Either this thread becomes the leader and calls ``commit_all`` with the commits that wait, or an
    earlier leader has committed ``pending`` already. A prepared commit, which no other leader
    takes, need not wait for its turn: `CommitLost`.
    """
    queue = _queues.join(key, pending)
    try:
        if not queue.turn.acquire(blocking=waits):
            raise CommitLost(key)
        try:
            if not pending.outcome.done():
                group = _queues.take(queue, pending)
                try:
                    commit_all(group)
                finally:
                    # An interrupted leader leaves the others to the next one, which first checks
                    # whether they have landed.
                    left = [p for p in group if not p.outcome.done() and p is not pending]
                    _queues.give_back(queue, left)
        finally:
            queue.turn.release()
    finally:
        _queues.leave(key, queue, pending)
    return pending.outcome.result()


# --- staged files that have waited long are copied ------------------------------------------------


# Characters of a name that a copy keeps: a segment of a key has at most 255.
_READABLE = 200


def check_staged(store: Store, change: Change, *, also_young: bool = False) -> None:
    """Raise `StagedFilesLost` if files of the change are gone.

    No file is checked unless one of them is old, or ``also_young``.
    """
    if also_young or _old_receipts(change):
        keys = [receipt.key for receipt in change.receipts]
        exist = map_in_threads(store.contains, keys, store=store)
        _check_none_lost(change, [key for key, exists in zip(keys, exist, strict=True) if not exists])


def with_fresh_copies(store: Store, change: Change) -> Change:
    """The change with new copies instead of files that have waited long.

    Garbage collection may have decided to delete the old files already, even if they still exist.

    Raises
    ------
    StagedFilesLost
        If some of the old files are gone.
    """
    old = _old_receipts(change)
    if not old or not current_options().grace:  # without a grace period no file is safe
        return change
    # Another name in the same folder, since the path has the partition values.
    copies = {r.key: f"{_stem(r.key)}-{new_id()}{file_suffix(r.key)}" for r in old}
    now = datetime.now(UTC)

    def copy(pair: tuple[str, str]) -> bool:
        try:
            store.copy(*pair)
        except KeyNotFound:
            return False
        return True

    done = map_in_threads(copy, copies.items())
    _check_none_lost(change, [key for key, copied in zip(copies, done, strict=True) if not copied])
    receipts = (
        dataclasses.replace(r, key=copies[r.key], staged=now) if r.key in copies else r for r in change.receipts
    )
    return replace(change, receipts=tuple(receipts))


def _old_receipts(change: Change) -> list[Receipt]:
    late = datetime.now(UTC) - current_options().grace / 2
    return [receipt for receipt in change.receipts if receipt.staged < late]


def is_copy(key: str, original: str) -> bool:
    """Whether a key is that of a copy that `with_fresh_copies` made of another file."""
    return key.startswith(f"{_stem(original)}-") and "/" not in key[len(_stem(original)) :]


def _stem(key: str) -> str:
    folder, slash, name = key.removesuffix(file_suffix(key)).rpartition("/")
    return f"{folder}{slash}{name[:_READABLE]}"


def _check_none_lost(change: Change, lost: Sequence[str]) -> None:
    if lost:
        raise StagedFilesLost(
            f"Dataset {change.uuid!r}: {len(lost)} of {len(change.receipts)} files of {change.describe()} are not in "
            f"the store any more, e.g. {lost[0]!r}: they waited longer than the grace period of garbage collection, or "
            "a deletion of the dataset removed them. Nothing of it is visible. Write the rows again."
        )


# --- committing -----------------------------------------------------------------------------------


_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds
_warned: set[tuple[object, ...]] = set()


class CommitLost(Exception):
    """Another commit won the compare-and-swap. This one is certainly not visible."""


def prepare_commit(store: Store, change: Change, base: Snapshot | None) -> PreparedCommit | None:
    """Raise what `commit_change` would raise now, without writing anything.

    `commit_change` takes the result, and repeats the work only if the dataset has changed since.
    None: the change is applied already.
    """
    newest = base if base is not None and is_current(store, base) else find_snapshot(store, change.uuid)
    return _prepared(store, change, base, newest)


def prepare_ahead(store: Store, change: Change, base: Snapshot | None) -> PreparedCommit | None:
    """The same as if the base were the newest state, with the files beside the document.

    They are garbage if the commit fails.
    """
    prepared = _prepared(store, change, base, base)
    if prepared is None:
        return None
    return replace(prepared, ahead=_write_beside(store, prepared.loaded, [prepared.applied]))


def _prepared(store: Store, change: Change, base: Snapshot | None, newest: Snapshot | None) -> PreparedCommit | None:
    if newest is not None and is_applied(change.txn, newest.document.metadata):
        return None
    loaded = _with_needed_indices(store, newest, [change])
    return PreparedCommit(change, newest, loaded, _apply(store, PendingCommit(change, base, 0), loaded))


def commit_change(
    store: Store,
    change: Change,
    base: Snapshot | None,
    prepared: PreparedCommit | None = None,
    *,
    waits: bool = True,
) -> Snapshot:
    """Commit a change that was made for ``base``, or rebase it onto the newest state.

    Order of writes: for a new dataset the schema file; index files under new keys and the history
    entry; the document, by compare-and-swap; the schema file if it differs. Commits of other
    threads that wait meanwhile share the swap. Unless it ``waits``, the first other writer, also in
    this process, is a conflict.

    Returns
    -------
    Snapshot
        The dataset as the change left it, or a later state that includes the change; ``result``
        says what was done. A change whose ``txn`` was applied before is skipped, whatever else it
        says.

    Raises
    ------
    CommitConflict
        If the change contradicts a commit that came first, or others came first ``commit_retries``
        times. The change is certainly not visible.
    CorruptDocument
        If the change has a number, and those of the document cannot be read.
    StagedFilesLost
        If files of the change, staged more than half the grace period ago, are gone. The change is
        certainly not visible. Old files that are still there are copied.
    CommitOutcomeUnknown
        If the store does not say whether the document was written and cannot be asked. Nothing is
        deleted.
    AtomicityRequired
        If the store cannot compare and swap.
    """
    check_store_can_commit(store)
    store.flush(leaving=_SENT_IN_TURN)  # others wait for their turn meanwhile
    pending = PendingCommit(change, base, current_options().commit_retries if waits else 0, prepared, store.flush)
    try:
        landed = group_commit((store.identity, change.uuid), pending, partial(_commit_all, store), waits=waits)
    except CommitLost as error:
        raise CommitConflict(
            f"Dataset {change.uuid!r}: another thread of this process is writing to it. Nothing of "
            f"{change.describe()} is visible. Repeat it."
        ) from error
    if landed.result is not None and not landed.result.skipped:
        name_commit(change.commit if change.cube is None else change.cube.id)
    if DELTA_KEY in landed.document.metadata and not change.is_prepared:  # else nobody sees it yet
        publish_after_commit(store, landed)
    return landed


# --- attempts -------------------------------------------------------------------------------------


def _commit_all(store: Store, group: Sequence[PendingCommit]) -> None:
    """Give every commit of a group its outcome, in as many attempts as that takes.

    If the files of the first one, the leader, could not be sent, the others are left to their own
    turns: the leader's store would raise its error again.
    """
    if len(group) > 1:
        for pending in group:
            with pending.own_errors():
                pending.flush()
        if group[0].outcome.done():
            return
    first = 0 if len(group) == 1 and group[0].begins_without_look(store) else 1
    for attempt in count(first):
        tries = attempt - first + 1
        group = [pending for pending in group if not pending.outcome.done()]
        if not group:
            return
        try:
            state = _newest_state(store, group, attempt)
            newest, unseen = (None, state) if isinstance(state, HiddenDocument) else (state, None)
            open_commits = []
            for pending in group:
                with pending.own_errors():
                    change = pending.change
                    # An interrupted leader may have committed it, or its number was written before.
                    landed = newest is not None and change.commit in [c.id for c in newest.chain]
                    if newest is not None and (landed or is_applied(change.txn, newest.document.metadata)):
                        result = CommitResult(change.commit, tries, skipped=not landed)
                        pending.outcome.set_result(replace(newest, result=result))
                        continue
                    if change.is_coordinator and (pending.prepared is None or state is not pending.prepared.newest):
                        check_not_aborted(store, change, state)
                    # If a dataset does not list its partitions, every file counts and none is ever
                    # garbage.
                    if newest is None or newest.document.partitions is not None:
                        change = with_fresh_copies(store, change)
                    if unseen is not None:  # the document is replaced in its encoding
                        change = replace(change, msgpack=unseen.stored.key.endswith(".zstd"))
                    open_commits.append(pending if change is pending.change else replace(pending, change=change))
            group = open_commits
            _commit_onto(store, newest, unseen, group, tries)
        except CommitLost:
            late = [p for p in group if attempt > p.retries and not p.outcome.done()]
            if late:
                newest = None
                with suppress(Exception):  # only for the message
                    newest = find_snapshot(store, late[0].change.uuid)
            for pending in late:
                reason = f"others were faster {attempt} times, and commit_retries is {pending.retries}"
                pending.outcome.set_exception(conflict(pending.change, pending.base, newest, reason))
            if attempt:
                pause(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)))
        except Exception as error:
            # Whatever else the store answers concerns all of them.
            for pending in group:
                if not pending.outcome.done():
                    pending.outcome.set_exception(error)


def _commit_onto(
    store: Store, newest: Snapshot | None, unseen: HiddenDocument | None, group: Sequence[PendingCommit], tries: int
) -> None:
    """Apply the changes of a group in turn, write the last state with one swap, set outcomes."""
    if not group:
        return
    prepared = group[0].prepared
    if len(group) == 1 and prepared is not None and prepared.newest is newest:
        state = loaded = prepared.loaded
    else:
        state = loaded = _with_needed_indices(store, newest, [pending.change for pending in group])
    steps: list[tuple[PendingCommit, AppliedChange]] = []
    repeated = []
    for pending in group:
        with pending.own_errors():
            # Another change of this group has the same number; it becomes visible with the swap.
            if steps and state is not None and is_applied(pending.change.txn, state.document.metadata):
                repeated.append(pending)
                continue
            step = _apply(store, pending, state, unseen)
            after = step.unwritten_snapshot() if len(group) > 1 else state
            steps.append((pending, step))
            state = after
    if not steps:
        return
    ahead = None
    if prepared is not None and len(steps) == 1 and steps[0][1] is prepared.applied:
        ahead = prepared.ahead
    landed = _write(store, loaded, unseen, [step for _, step in steps], ahead)
    for pending, step in steps:
        result = CommitResult(step.change.commit, tries, step.reapplied)
        pending.outcome.set_result(replace(landed, result=result))
    for pending in repeated:
        result = CommitResult(pending.change.commit, tries, skipped=True)
        pending.outcome.set_result(replace(landed, result=result))


def swap_tells(store: Store, base: Snapshot) -> bool:
    """Whether a swap onto a state is as cheap as a look whether it is the newest one."""
    is_plain = base.key == document_key(base.uuid) and base.document.partitions is not None
    return store.is_remote and is_plain and base.token is not None and base.undecided is None


def _newest_state(store: Store, group: Sequence[PendingCommit], attempt: int) -> Snapshot | HiddenDocument | None:
    if not attempt:
        return group[0].base
    base, change, prepared = group[0].base, group[0].change, group[0].prepared
    # The first attempt of a single commit only checks whether its base is still the newest state.
    if attempt > 1 or len(group) > 1 or group[0].is_retried:
        return decided_state(store, change.uuid)
    if prepared is not None and prepared.change is change and change.part is not None:
        # It was the newest state just now; the swap tells whether it still is.
        newest = prepared.newest
        if newest is None or (newest.undecided is None and newest.document.partitions is not None):
            return newest
    # If the document lists no partitions, there may be new files although it is the same.
    if base is not None and (base.document.partitions is None or not is_current(store, base)):
        return decided_state(store, change.uuid)
    return base


def _with_needed_indices(store: Store, newest: Snapshot | None, changes: Sequence[Change]) -> Snapshot | None:
    if newest is None or not any(map(needs_indices, changes)):
        return newest
    return with_indices(store, newest, sorted(newest.secondary_columns))


def _apply(
    store: Store, pending: PendingCommit, state: Snapshot | None, unseen: HiddenDocument | None = None
) -> AppliedChange:
    """Apply one change to a state, unless that was prepared."""
    check_staged(store, pending.change)
    prepared = pending.prepared
    if unseen is None and prepared is not None and prepared.change is pending.change and prepared.loaded is state:
        return prepared.applied
    if state is not None and state.chain and state.has_foreign_commit:
        seen = (store.identity, state.uuid, state.chain[-1].id, state.token)
        if seen not in _warned:  # once per foreign commit
            _warned.add(seen)
            warnings.warn(
                f"Dataset {state.uuid!r} was changed by a library without commit ids (kartothek, plateau) after commit "
                f"{state.chain[-1].id}. Such a writer removes what others commit while it works; verify_dataset finds "
                "what it left behind.",
                ForeignWriterWarning,
                stacklevel=2,
            )
    return rebase_and_apply(pending.change, pending.base, state, None if unseen is None else unseen.records)


# --- writing --------------------------------------------------------------------------------------


def _write(
    store: Store,
    newest: Snapshot | None,
    unseen: HiddenDocument | None,
    steps: Sequence[AppliedChange],
    ahead: WrittenAhead | None,
) -> Snapshot:
    """Write all files of one swap and the document; return the state after it."""
    last = steps[-1]
    document, twin, seen = ahead or _write_beside(store, newest, steps)
    store.flush()
    token = swap(store, last.change, newest, document, twin, unseen)
    uuid, schemas = last.change.uuid, last.next.schemas
    if newest is None:
        # Who withdraws leaves the schema files to the other dataset.
        looks = [partial(look_at_schema_file, store, schema_key(uuid, t), schema) for t, schema in schemas.items()]
        _, *found = at_once(store, partial(_withdraw_from_twin, store, last.change), *looks)
        seen = dict(zip(schemas, found, strict=True))
    if token is None and not last.change.is_prepared:
        with suppress(Exception):  # the commit has landed, whatever the store answers now
            return load_snapshot(store, uuid)
        return last.snapshot(document, None)

    def is_newest() -> bool:
        return token is not None and not store.changed(last.change.key_onto(newest), token)

    each = [partial(update_schema_file, store, schema_key(uuid, t), schemas[t], seen[t], is_newest) for t in schemas]
    with suppress(Exception):  # the commit has landed, and the next one checks these copies again
        at_once(store, *each)
    landed = last.snapshot(document, token)
    return landed if last.change.is_prepared else remember(store, landed)


def _write_beside(store: Store, newest: Snapshot | None, steps: Sequence[AppliedChange]) -> WrittenAhead:
    """Write the files that a document names; look at what lies beside it."""
    last, now = steps[-1], datetime.now(UTC).replace(tzinfo=None)
    uuid, schemas, indices, document = last.change.uuid, last.next.schemas, last.indices, last.next.document

    def put_entry(entry: HistoryEntry) -> None:
        # The key belongs to this commit alone, so this replaces at most an attempt that was lost.
        store.put(history_key(uuid, entry.commit), encode_entry(entry))

    columns = sorted({*last.next.indices, *(c for c, key in document.indices.items() if key is UNWRITTEN)})
    tasks: list[Callable[[], Any]] = [partial(put_index, store, uuid, indices[c], now) for c in columns]
    statistics = concat_statistics(step.statistics for step in reversed(steps))
    if len(statistics):
        tasks.append(lambda: written_reference(store, last.next.document, statistics).render())
    # A new one before the document, since kartothek cannot open a dataset without its schema files.
    look = create_schema_file if newest is None else look_at_schema_file
    tasks += [partial(put_entry, step.entry) for step in steps]
    tasks += [partial(look, store, schema_key(uuid, table), schema) for table, schema in schemas.items()]
    tasks.append(partial(_find_stale_twin, store, last.change, newest))
    has_many = sum(len(indices[c].keys) for c in columns) > _MANY_VALUES
    *written, twin = map_in_threads(lambda task: task(), tasks, store=store) if has_many else at_once(store, *tasks)
    document = replace(document, indices={**document.indices, **dict(zip(columns, written, strict=False))})
    if len(statistics):
        document = replace(document, metadata={**document.metadata, STATISTICS_KEY: written[len(columns)]})
    return WrittenAhead(document, twin, dict(zip(schemas, written[len(written) - len(schemas) :], strict=True)))


def put_index(store: Store, uuid: str, index: SecondaryIndex, when: datetime) -> str:
    """Write an index file under a new key, and return the key."""
    # Keys have the time: if one exists, the next microsecond is tried.
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


# --- the swap -------------------------------------------------------------------------------------


def swap(
    store: Store,
    change: Change,
    base: Snapshot | None,
    document: Document,
    twin: Hashable,
    unseen: HiddenDocument | None = None,
) -> Hashable:
    """Put the document if that of ``base`` is still current, and return its version.

    ``change`` is the last one that the document includes. Without ``base`` it may replace a
    document that no reader sees. ``twin`` as of `_find_stale_twin`. None: later commits follow it
    already.

    Raises
    ------
    CommitLost
        If another writer was faster.
    CommitOutcomeUnknown
        If the store does not say whether the document was written and cannot be asked.
    """
    key, replaced = change.key_onto(base), base.token if base is not None else None
    if unseen is not None:
        replaced = unseen.stored.token
    result = compare_and_swap(
        store,
        key,
        render_document(document, msgpack=key.endswith(".zstd")),
        replaced,
        is_applied=lambda stored: change.commit in [c.id for c in stored_chain(stored, key)],
        context=f"Dataset {change.uuid!r}: {change.describe()}",
    )
    if not result.applied:
        _check_certainly_lost(store, change, base, replaced, result)
        raise CommitLost(key) from result.error
    token = result.version
    if result.error is not None and result.data is not None and stored_chain(result.data, key)[-1].id != change.commit:
        token = None
    if base is not None and key != document_key(change.uuid):
        _check_not_shadowed(store, change)
    stale = document_key(change.uuid, msgpack=True)
    with suppress(Exception):  # the commit has landed, and the next one checks again
        # If the document changed during the swap, the dataset's encoding may have been changed.
        if twin is not None and not store.changed(stale, twin):
            store.delete(stale)
            text = f"{document_key(change.uuid)!r} counts; {stale!r} was removed."
            warnings.warn(f"Dataset {change.uuid!r} had two documents. {text}", stacklevel=2)
    return token


def _check_certainly_lost(
    store: Store, change: Change, base: Snapshot | None, replaced: Hashable, result: SwapResult
) -> None:
    """Raise if the commit may have been applied and have left the chain since."""
    if result.data is None or result.version == replaced:
        return
    key = change.key_onto(base)
    chain = stored_chain(result.data, key)
    parent = None if base is None or base.has_foreign_commit else base.chain[-1].id
    if not chain or parent in [c.id for c in chain]:
        return
    # Old commits leave a full chain, and all of them leave it when one of ours follows a foreign
    # writer. A store that has refused the put leaves no doubt in the second case.
    is_full = len(chain) == LENGTH and chain[0].parent is not None
    if is_full and _leads_to(store, change, chain[0].parent, parent):  # the base was that old
        return
    if is_full or (parent is not None and not isinstance(result.error, VersionMismatch)):
        raise CommitOutcomeUnknown(
            f"Dataset {change.uuid!r}: the store answered {result.error!r} to {change.describe()}, and so many commits "
            f"have followed that {key!r} does not say any more what became of it. Look whether its partitions are "
            "there before writing again."
        ) from result.error


def _leads_to(store: Store, change: Change, commit: str | None, parent: str | None) -> bool:
    """Whether history leads from a commit back to the parent of a change, and not by the change."""
    with suppress(Exception):
        while commit not in (None, change.commit, parent):
            entry = read_entry(store, change.uuid, str(commit))
            commit = None if entry is None else entry.parent
        return commit is not None and commit == parent
    return False


def _find_stale_twin(store: Store, change: Change, base: Snapshot | None) -> Hashable:
    """Version of the msgpack document that an old library left beside the JSON one, or None."""
    json_key, msgpack_key = document_key(change.uuid), document_key(change.uuid, msgpack=True)
    if change.key_onto(base) != json_key:
        return None
    if base is None:
        if store.contains(msgpack_key):  # not stale: another writer has just created the dataset
            raise conflict(change, base, None, f"{msgpack_key!r} was created")
        return None
    try:
        return store.get_versioned(msgpack_key)[1]
    except KeyNotFound:
        return None


def _withdraw_from_twin(store: Store, change: Change) -> None:
    """Delete the document of a new dataset if there is another one in the other encoding."""
    # Two writers may create the dataset in different encodings; whichever sees the other's document
    # withdraws.
    key = change.key_onto(None)
    other = document_key(change.uuid, msgpack=key == document_key(change.uuid))
    try:
        exists = store.contains(other)
        if exists:
            store.delete(key)
    except Exception as error:
        raise CommitOutcomeUnknown(
            f"Dataset {change.uuid!r}: {key!r} was written by {change.describe()}, but whether {other!r} was created "
            f"at the same time cannot be asked now ({error!r}). Look which of them are there before writing again."
        ) from error
    if exists:
        raise conflict(change, None, None, f"{other!r} was created at the same time")


def _check_not_shadowed(store: Store, change: Change) -> None:
    """Raise `CommitLost` if a JSON document hides the msgpack document with this change."""
    # kartothek updates a msgpack document by a JSON one beside it, which wins.
    key = document_key(change.uuid)
    try:
        shadow = stored_chain(store.get(key), key)
    except KeyNotFound:
        return
    except Exception as error:
        raise CommitOutcomeUnknown(
            f"Dataset {change.uuid!r}: {change.describe()} was written to {document_key(change.uuid, msgpack=True)!r}, "
            f"but whether {key!r} was put beside it cannot be asked now ({error!r}). Look whether it is there before "
            "writing again."
        ) from error
    if change.commit not in [c.id for c in shadow]:
        raise CommitLost(key)
