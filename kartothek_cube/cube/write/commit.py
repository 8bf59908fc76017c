"""The commits of a write to a cube, which readers see all at once or not at all.

The page `docs/design/007-cube-writes.md` has the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count

from msgspec.structs import replace

from kartothek_cube.core.arguments import converter_str_set_optional
from kartothek_cube.core.commit.change import Change, check_on_conflict
from kartothek_cube.core.commit.commit import (
    PreparedCommit,
    check_staged,
    commit_change,
    prepare_ahead,
    prepare_commit,
    swap_tells,
)
from kartothek_cube.core.commit.cube_writes import WriteAborted, roll_back_all, settle, swap_or_roll_back
from kartothek_cube.core.delta.publication import publish_after_commit
from kartothek_cube.core.metadata.commit_log import CubeCommit, CubePart, Txn, is_applied, ledger_of, mark_of
from kartothek_cube.core.metadata.document import DELTA_KEY
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads, pause
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.loader import HiddenDocument, find_snapshot, find_state, load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.uploads import uploading
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.members import load_cube
from kartothek_cube.cube.write.plan import CubeWrite, InputData, check_stays_filled, plan_removal
from kartothek_cube.cube.write.stage import Planner, stage_input
from kartothek_cube.errors import CommitConflict, CommitOutcomeUnknown, MultiTableCommitAborted
from kartothek_cube.typing import IntoConditions

_LONGEST_PAUSE = 0.5  # seconds


def write_input(store: Store, plan: Planner, data: InputData) -> dict[str, Snapshot]:
    """Plan, stage and publish rows."""
    with uploading(store) as opened:
        return commit_cube_write(opened, *stage_input(opened, plan, data))


def commit_cube_write(store: Store, write: CubeWrite, receipts: Mapping[str, Sequence[Receipt]]) -> dict[str, Snapshot]:
    """Publish staged files; errors as of `publish`."""
    check_stays_filled(write, receipts)
    changes = {i: write.change(i, receipts.get(i, ())) for i in write.datasets}
    return publish(store, write.cube, changes, write.bases)


def remove_from_members(
    cube: Cube,
    store: Store,
    conditions: IntoConditions,
    ktk_cube_dataset_ids: object,
    metadata: object,
    on_conflict: object,
    txn: Txn | None = None,
) -> dict[str, Snapshot]:
    """Remove partitions, without rows; datasets that have the ``txn`` already are skipped."""
    members = load_cube(cube, store)
    names = converter_str_set_optional(ktk_cube_dataset_ids)
    concerned, rule = sorted(members if names is None else names), check_on_conflict(on_conflict)
    write = plan_removal(
        cube, members, conditions, concerned, metadata, named=names is not None, on_conflict=rule, txn=txn
    )
    landed = {**members, **commit_cube_write(store, write, {})}
    return {i: landed[i] for i in members}


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
    # On a far store the first attempt asks for nothing that a refused swap would tell, too.
    first = 0 if store.is_remote else 1
    for attempt in count(first):
        try:
            return _publish(store, cube, changes, bases, is_first=attempt == first)
        except WriteAborted:
            if attempt > current_options().commit_retries:
                raise
            pause(min(_LONGEST_PAUSE, 0.01 * 2**attempt))
            changes = {i: replace(change, commit=new_id()) for i, change in changes.items()}
            for change in changes.values():  # who deleted a dataset has deleted what was prepared there
                check_staged(store, change, also_young=True)
    raise AssertionError


def _publish(
    store: Store, cube: Cube, changes: Mapping[str, Change], bases: Mapping[str, Snapshot], *, is_first: bool
) -> dict[str, Snapshot]:
    """One attempt of `publish`."""
    applied = _applied(store, changes)
    landed = {i: commit_change(store, changes[i], bases.get(i)) for i in applied}
    changes_left = {i: change for i, change in changes.items() if i not in applied}
    if len(changes_left) == 1:
        ((i, change),) = changes_left.items()
        landed[i] = commit_change(store, change, bases.get(i))
    elif changes_left:
        landed |= _publish_together(store, cube, changes_left, bases, is_first=is_first)
    return {i: landed[i] for i in changes}


def _applied(store: Store, changes: Mapping[str, Change]) -> set[str]:
    """The datasets that have the number of their change: an older version wrote one by one."""

    def is_done(change: Change) -> bool:
        newest = None if change.txn is None else find_snapshot(store, change.uuid)
        return newest is not None and is_applied(change.txn, newest.document.metadata)

    done = map_in_threads(is_done, list(changes.values()), store=store)
    return {i for i, is_there in zip(changes, done, strict=True) if is_there}


def _publish_together(
    store: Store, cube: Cube, changes: Mapping[str, Change], bases: Mapping[str, Snapshot], *, is_first: bool
) -> dict[str, Snapshot]:
    seed, uuid = cube.seed_dataset, cube.ktk_dataset_uuid(cube.seed_dataset)
    others = {i: changes[i] for i in sorted(changes) if i != seed}
    uuids = tuple(change.uuid for change in others.values())
    write, now = CubeCommit(new_id(), tuple(sorted(change.uuid for change in changes.values()))), datetime.now(UTC)
    if seed not in changes:
        state = find_state(store, uuid)
        if not isinstance(state, Snapshot):
            raise CommitConflict(
                f"The seed {uuid!r} was deleted after this write began, so its cube is no more. Nothing of the write "
                "is visible. Build the cube again."
            )
        bases = {**bases, seed: state}
    last = changes[seed] if seed in changes else empty_change(bases[seed])
    last = replace(last, cube=write, part=CubePart(uuid, uuids), time=now)
    at_once = is_first and store.is_remote and all(swap_tells(store, base) for base in bases.values())
    # Everything is checked before the first swap, the coordinator first: if it stays as it is now,
    # nobody can have aborted the write.
    prepared = {} if at_once else {seed: prepare_commit(store, last, bases.get(seed))}
    first = prepared.get(seed)
    newest: Snapshot | HiddenDocument | None = bases.get(seed) if first is None else first.newest
    if newest is None and not is_first:  # the seed may be a vacancy, which aborts have left
        newest = find_state(store, uuid)
    part = part_of(uuid, uuids, newest)
    others = {i: replace(change, cube=write, part=part, time=now) for i, change in others.items()}
    if at_once:
        every = {**others, seed: last}
        ahead = map_in_threads(lambda i: prepare_ahead(store, every[i], bases.get(i)), list(every), store=store)
        prepared = dict(zip(every, ahead, strict=True))
    else:
        prepared |= {i: prepare_commit(store, change, bases.get(i)) for i, change in others.items()}
    landed: dict[str, Snapshot] = {}
    try:
        if at_once and len(others) > 1:
            landed = _marked_at_once(store, others, bases, prepared)
        else:
            # In the order of their names, so that of two writers one comes first everywhere.
            for i, change in others.items():
                landed[i] = _landed(commit_change(store, change, bases.get(i), prepared.pop(i)))
    except (Exception, KeyboardInterrupt) as error:
        roll_back_all(store, uuids, write.id)
        if isinstance(error, CommitOutcomeUnknown):  # the others tell: it will never be visible
            raise MultiTableCommitAborted(
                f"The write {write.id} to {', '.join(write.datasets)} was given up before its last swap. Nothing of "
                f"it is visible, nor will be. Repeat it. Reason: {error}"
            ) from error
        raise
    marks = {snapshot.uuid: mark_of(snapshot.document.metadata) for snapshot in landed.values()}
    befores = {u: (mark.before, mark.known) for u, mark in marks.items() if mark is not None}
    last = replace(last, part=replace(part, befores=befores))
    checked = prepared.pop(seed)
    seen = commit_coordinator(store, last, bases.get(seed), checked and replace(checked, change=last))
    complete = dict(zip(landed, settle(store, list(landed.values())), strict=True))
    for snapshot in complete.values():
        if DELTA_KEY in snapshot.document.metadata:
            publish_after_commit(store, snapshot)
    return complete | ({seed: seen} if seed in changes else {})


def _marked_at_once(
    store: Store,
    changes: Mapping[str, Change],
    bases: Mapping[str, Snapshot],
    prepared: Mapping[str, PreparedCommit | None],
) -> dict[str, Snapshot]:
    """Swap all datasets but the coordinator at once.

    Two writers could wait for each other, so nothing is waited for, neither in the store nor in
    this process: if somebody else was faster, the write begins again, one dataset after the other.
    """

    def mark(i: str) -> Snapshot:
        try:
            return _landed(commit_change(store, changes[i], bases.get(i), prepared[i], waits=False))
        except CommitConflict as error:
            raise WriteAborted(str(error)) from error

    return dict(zip(changes, map_in_threads(mark, list(changes), store=store), strict=True))


def _landed(snapshot: Snapshot) -> Snapshot:
    if snapshot.result is not None and snapshot.result.skipped:
        raise WriteAborted(
            f"Dataset {snapshot.uuid!r} got the number of this write while it was being written. Nothing of it is "
            "visible. Repeat it."
        )
    return snapshot


def part_of(coordinator: str, others: tuple[str, ...], state: Snapshot | HiddenDocument | None) -> CubePart:
    """The part in a write to several datasets; ``state`` is that of the coordinator."""
    stored = state.stored if isinstance(state, HiddenDocument) else state
    ledger = None if stored is None else ledger_of(stored.document.metadata)
    return CubePart(coordinator, others, not isinstance(state, Snapshot), ledger)


def empty_change(base: Snapshot) -> Change:
    """A change of nothing: the commit is the moment of a write to other datasets."""
    indices, explicit = tuple(sorted(base.secondary_columns)), base.document.partitions is not None
    return Change(base.uuid, (), {}, base.partition_keys, indices, creates=False, explicit=explicit, data_change=False)


def commit_coordinator(
    store: Store, change: Change, base: Snapshot | None, prepared: PreparedCommit | None
) -> Snapshot:
    """Swap the coordinator: the moment of the write."""
    landed = swap_or_roll_back(store, change, lambda: _landed(commit_change(store, change, base, prepared)))
    if landed is not None:
        return landed
    state = base if prepared is None else prepared.applied.unwritten_snapshot()
    with suppress(Exception):  # it has landed, whatever the store answers now
        state = load_snapshot(store, change.uuid)
    assert state is not None
    return replace(state, result=CommitResult(change.commit, 1))
