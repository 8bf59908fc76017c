"""The commits of a write to a cube, which readers see all at once or not at all.

The page `docs/design/007-cube-writes.md` has the protocol.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change, prepare_commit
from kartothek_cube.core.commit.cube_writes import WriteAborted, abort_write, put_back, settle
from kartothek_cube.core.commit.group_commit import PreparedCommit
from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.metadata.cube_writes import CubePart, Fate, ledger_of
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot
from kartothek_cube.core.metadata.txn import is_applied
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.loader import find_snapshot, find_state, load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.receipt import Receipt
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.write.input_data import InputData
from kartothek_cube.cube.write.plan import CubeWrite, check_stays_filled
from kartothek_cube.cube.write.staging import Planner, stage_input
from kartothek_cube.errors import CommitConflict, CommitOutcomeUnknown, KartothekCubeError, MultiTableCommitAborted

__all__ = ["commit_cube_write", "publish", "write_input"]

_LONGEST_PAUSE = 0.5  # seconds


def write_input(store: Store, plan: Planner, data: InputData) -> dict[str, Snapshot]:
    """Plan, stage and publish rows."""
    return commit_cube_write(store, *stage_input(store, plan, data))


def commit_cube_write(store: Store, write: CubeWrite, receipts: Mapping[str, Sequence[Receipt]]) -> dict[str, Snapshot]:
    """Publish staged files; errors as of `publish`."""
    check_stays_filled(write, receipts)
    changes = {i: write.change(i, receipts.get(i, ())) for i in write.datasets}
    return publish(store, write.cube, changes, write.bases)


def publish(
    store: Store, cube: Cube, changes: Mapping[str, Change], bases: Mapping[str, Snapshot]
) -> dict[str, Snapshot]:
    """Make changes of datasets of a cube visible, all at once.

    Raises
    ------
    MultiTableCommitAborted
        If a dataset would be empty. Nothing is visible.
    CommitConflict
        If a commit in between contradicts one of the changes. Nothing is visible.
    CommitOutcomeUnknown
        If the store does not say whether the write has landed and cannot be asked. It is visible
        whole or not at all.
    """
    applied = _applied(store, changes)
    landed = {i: commit_change(store, changes[i], bases.get(i)) for i in applied}
    changes_left = {i: change for i, change in changes.items() if i not in applied}
    if len(changes_left) == 1:
        ((i, change),) = changes_left.items()
        landed[i] = commit_change(store, change, bases.get(i))
    elif changes_left:
        landed |= _publish_together(store, cube, changes_left, bases)
    return {i: landed[i] for i in changes}


def _applied(store: Store, changes: Mapping[str, Change]) -> set[str]:
    """The datasets that have the number of their change: an older version wrote one by one."""

    def is_done(change: Change) -> bool:
        newest = None if change.txn is None else find_snapshot(store, change.uuid)
        return newest is not None and is_applied(change.txn, newest.document.metadata)

    done = map_in_threads(is_done, list(changes.values()), store=store)
    return {i for i, is_there in zip(changes, done, strict=True) if is_there}


def _publish_together(
    store: Store, cube: Cube, changes: Mapping[str, Change], bases: Mapping[str, Snapshot]
) -> dict[str, Snapshot]:
    """Publish changes of several datasets, again if another process aborts the write."""
    for attempt in count(1):
        try:
            return _publish_once(store, cube, changes, bases)
        except WriteAborted:
            if attempt > current_options().commit_retries:
                raise
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.01 * 2**attempt)))  # noqa: S311 - no secret
            changes = {i: replace(change, commit=new_id()) for i, change in changes.items()}
    raise AssertionError


def _publish_once(
    store: Store, cube: Cube, changes: Mapping[str, Change], bases: Mapping[str, Snapshot]
) -> dict[str, Snapshot]:
    seed, uuid = cube.seed_dataset, cube.ktk_dataset_uuid(cube.seed_dataset)
    others = {i: changes[i] for i in sorted(changes) if i != seed}
    uuids = tuple(change.uuid for change in others.values())
    write, now = CubeCommit(new_id(), tuple(sorted((*uuids, uuid)))), datetime.now(UTC)
    bases = bases if seed in changes else {**bases, seed: _seed(store, uuid)}
    last = changes[seed] if seed in changes else _touch(bases[seed])
    # Everything is checked before the first swap, the coordinator first: if it stays as it is now,
    # nobody can have aborted the write.
    last = replace(last, cube=write, part=CubePart(uuid, uuids, False, False), time=now)
    prepared = {seed: prepare_commit(store, last, bases.get(seed))}
    newest = bases.get(seed) if (first := prepared[seed]) is None else first.newest
    part = CubePart(uuid, uuids, newest is None, newest is not None and ledger_of(newest.document.metadata) is not None)
    others = {i: replace(change, cube=write, part=part, time=now) for i, change in others.items()}
    prepared |= {i: prepare_commit(store, change, bases.get(i)) for i, change in others.items()}
    landed: dict[str, Snapshot] = {}
    try:
        # In the order of their names, so that of two writers one comes first everywhere.
        for i, change in others.items():
            landed[i] = _landed(commit_change(store, change, bases.get(i), prepared.pop(i)))
    except (Exception, KeyboardInterrupt) as error:
        _give_up(store, write, landed, others)
        if isinstance(error, CommitOutcomeUnknown):  # the others tell: it will never be visible
            raise MultiTableCommitAborted(
                f"The write {write.id} to {', '.join(write.datasets)} was given up before its last swap. Nothing of "
                f"it is visible, nor will be. Repeat it. Reason: {error}"
            ) from error
        raise
    seen = _commit_coordinator(store, last, bases, prepared.pop(seed), landed, others)
    complete = dict(zip(landed, settle(store, list(landed.values())), strict=True))
    return complete | ({seed: seen} if seed in changes else {})


def _landed(snapshot: Snapshot) -> Snapshot:
    if snapshot.result is not None and snapshot.result.skipped:
        raise WriteAborted(
            f"Dataset {snapshot.uuid!r} got the number of this write while it was being written. Nothing of it is "
            "visible. Repeat it."
        )
    return snapshot


def _seed(store: Store, uuid: str) -> Snapshot:
    state = find_state(store, uuid)
    if not isinstance(state, Snapshot):
        raise CommitConflict(f"The seed {uuid!r} was deleted. Nothing of this write is visible.")
    return state


def _touch(base: Snapshot) -> Change:
    """A change of nothing: the commit is the moment of a write to other datasets."""
    indices, explicit = tuple(sorted(base.secondary_columns)), base.document.partitions is not None
    return Change(base.uuid, (), {}, base.partition_keys, indices, creates=False, explicit=explicit, data_change=False)


def _commit_coordinator(
    store: Store,
    change: Change,
    bases: Mapping[str, Snapshot],
    prepared: PreparedCommit | None,
    landed: Mapping[str, Snapshot],
    others: Mapping[str, Change],
) -> Snapshot:
    """Swap the coordinator: the moment of the write."""
    assert change.cube is not None
    base = next((base for base in bases.values() if base.uuid == change.uuid), None)
    try:
        return _landed(commit_change(store, change, base, prepared))
    except CommitOutcomeUnknown:
        raise  # the ledger decides
    except KartothekCubeError:
        _give_up(store, change.cube, landed, others)
        raise
    except Exception as error:
        # A put that failed may still arrive. Only an abort, which is a swap, too, is certain.
        if _is_committed_after_all(store, landed, error):
            return replace(load_snapshot(store, change.uuid), result=CommitResult(change.commit, 1))
        _give_up(store, change.cube, landed, others)
        raise


def _is_committed_after_all(store: Store, landed: Mapping[str, Snapshot], error: Exception) -> bool:
    uuid = next(iter(landed.values())).uuid
    try:
        state = find_state(store, uuid)
        undecided = None if state is None else state.undecided
        return undecided is None or abort_write(store, uuid, undecided) is Fate.COMMITTED
    except Exception as failure:
        raise CommitOutcomeUnknown(
            f"The store answered {error!r} to the last swap of a write to several datasets and cannot be asked now "
            f"({failure!r}). The write is visible whole or not at all. Look before writing again."
        ) from error


def _give_up(store: Store, write: CubeCommit, landed: Mapping[str, Snapshot], others: Mapping[str, Change]) -> None:
    """Take back what a write that will never commit has prepared, as far as the store lets us."""
    # The one that failed may have been prepared, too.
    begun = list(others)[: len(landed) + 1]
    for i in begun:
        with suppress(Exception):
            put_back(store, others[i].uuid, write.id)
