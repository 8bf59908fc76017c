"""Committing a write to a cube: one commit a dataset, in an order in which readers never miss what belongs together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from kartothek_cube.core.change import Change
from kartothek_cube.core.commit import commit, prepare_commit
from kartothek_cube.core.metadata.chain import CubeCommit
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.txn import is_applied, write_id
from kartothek_cube.core.naming import fresh_id
from kartothek_cube.core.rebase import needs_indices
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.store import Store
from kartothek_cube.cube.input_data import InputData
from kartothek_cube.cube.stage import stage_input, stage_tables
from kartothek_cube.cube.write_buffer import Planner
from kartothek_cube.cube.write_plan import CubeWrite, check_stays_filled
from kartothek_cube.errors import CubeCommitIncomplete

__all__ = ["commit_cube_write", "publish_in_order", "write_input", "write_tables"]


def write_input(store: Store, plan: Planner, data: InputData) -> dict[str, Snapshot]:
    """Plan, stage and publish rows."""
    return commit_cube_write(store, *stage_input(store, plan, data))


def write_tables(store: Store, write: CubeWrite, tables: Mapping[str, pa.Table]) -> dict[str, Snapshot]:
    """Stage and publish tables."""
    return commit_cube_write(store, write, stage_tables(store, write, tables))


def commit_cube_write(store: Store, write: CubeWrite, receipts: Mapping[str, Sequence[Receipt]]) -> dict[str, Snapshot]:
    """Publish staged files: enrichments first, the seed last, so that new cells appear with everything that belongs to them.

    Raises
    ------
    MultiTableCommitAborted
        If a dataset would be empty. Nothing is visible.
    CommitConflict
        If one of the datasets was changed in between in a way that contradicts this write. Nothing is visible.
    CubeCommitIncomplete
        If a later dataset could not be published. The message lists what landed.
    """
    check_stays_filled(write, receipts)
    changes = {i: write.change(i, receipts.get(i, ())) for i in write.datasets}
    # New cells appear with everything that belongs to them; what goes disappears with the seed.
    order = sorted(changes, key=lambda name: (name == write.cube.seed_dataset) != write.may_vanish)
    landed = publish_in_order(store, write.cube.uuid_prefix, {i: changes[i] for i in order}, write.bases)
    return {i: landed[i] for i in changes}


def publish_in_order(store: Store, uuid_prefix: str, changes: Mapping[str, Change], bases: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """Publish changes of several datasets of a cube, in their order, after all of them were checked against the newest state.

    Raises
    ------
    CommitConflict
        If one of the datasets was changed in between in a way that contradicts its change. Nothing is visible.
    CubeCommitIncomplete
        If a later dataset could not be published. The message lists what landed.
    """
    together = _cube_commit(changes, bases)
    changes = {i: replace(change, cube=together) for i, change in changes.items()}
    # One alone is checked as it is published.
    checked = {i: prepare_commit(store, change, bases.get(i)) for i, change in changes.items()} if len(changes) > 1 else {}
    landed: dict[str, Snapshot] = {}
    for i, change in changes.items():
        with _with_progress_in_errors(uuid_prefix, i, changes, landed):
            landed[i] = commit(store, change, bases.get(i), checked.pop(i, None))
    return landed


def _cube_commit(changes: Mapping[str, Change], bases: Mapping[str, Snapshot]) -> CubeCommit | None:
    """What the commits have in common, for readers that must not look between two of them; None if only one of them matters."""
    # An index changes no answer, so readers need not wait for it in all datasets.
    if not any(change.replace or needs_indices(change) for change in changes.values()):
        return None
    txns = {change.txn for change in changes.values()}
    txn = txns.pop() if len(txns) == 1 else None
    # A numbered write that is repeated after it stopped halfway is the same write.
    write = fresh_id() if txn is None else write_id(txn, [change.uuid for change in changes.values()])
    uuids = sorted(change.uuid for i, change in changes.items() if not _has_txn_only(change, bases.get(i), write))
    return CubeCommit(write, tuple(uuids)) if len(uuids) > 1 else None


def _has_txn_only(change: Change, base: Snapshot | None, write: str) -> bool:
    """True if the txn was applied to the dataset by a different write; this write will then skip it forever."""
    if base is None or not is_applied(change.txn, base.document.metadata):
        return False
    return write not in [commit.cube.id for commit in base.chain if commit.cube is not None]


@contextmanager
def _with_progress_in_errors(uuid_prefix: str, name: str, changes: Mapping[str, Change], landed: Mapping[str, Snapshot]) -> Iterator[None]:
    """Let an error say which datasets have landed."""
    try:
        yield
    except Exception as error:
        if not landed:
            raise
        results = {i: state.result for i, state in landed.items()}
        done = ", ".join(
            f"{i} (before, with this number)" if result is None or result.skipped else f"{i} (commit {result.id})" for i, result in results.items()
        )
        left = ", ".join(i for i in changes if i not in landed)
        # What is undone keeps its number, so the rest alone would be written then.
        mend = "`undo` with these commits takes back what landed" if changes[name].txn is None else "Repeat the write with the same txn, which completes it"
        raise CubeCommitIncomplete(
            f"Cube {uuid_prefix!r}: the commit stopped at dataset {name!r}. Landed: {done}. Not landed: {left}. {mend}. Reason: {error}"
        ) from error
