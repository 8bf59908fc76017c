"""The commits of a write to a cube: one per dataset, in an order that readers can follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change, prepare_commit
from kartothek_cube.core.commit.rebase import needs_indices
from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.txn import is_applied, write_id
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.receipt import Receipt
from kartothek_cube.cube.write.input_data import InputData
from kartothek_cube.cube.write.plan import CubeWrite, check_stays_filled
from kartothek_cube.cube.write.staging import Planner, stage_input
from kartothek_cube.errors import CubeCommitIncomplete

__all__ = ["commit_cube_write", "publish_in_order", "write_input"]


def write_input(store: Store, plan: Planner, data: InputData) -> dict[str, Snapshot]:
    """Plan, stage and publish rows."""
    return commit_cube_write(store, *stage_input(store, plan, data))


def commit_cube_write(store: Store, write: CubeWrite, receipts: Mapping[str, Sequence[Receipt]]) -> dict[str, Snapshot]:
    """Publish staged files: enrichments first, the seed last; a removal in the opposite order.

    Raises
    ------
    MultiTableCommitAborted
        If a dataset would be empty. Nothing is visible.
    CommitConflict
        If a commit in between contradicts this write. Nothing is visible.
    CubeCommitIncomplete
        If a later dataset could not be published. The message lists the commits that landed.
    """
    check_stays_filled(write, receipts)
    changes = {i: write.change(i, receipts.get(i, ())) for i in write.datasets}
    # Cells exist where the seed has them: new ones appear with all their payload, and removed ones
    # disappear before it.
    order = sorted(changes, key=lambda name: (name == write.cube.seed_dataset) != write.may_vanish)
    landed = publish_in_order(store, write.cube.uuid_prefix, {i: changes[i] for i in order}, write.bases)
    return {i: landed[i] for i in changes}


def publish_in_order(
    store: Store, uuid_prefix: str, changes: Mapping[str, Change], bases: Mapping[str, Snapshot]
) -> dict[str, Snapshot]:
    """Publish changes of several datasets of a cube, in their order.

    All of them are checked against the newest state before the first commit.

    Raises
    ------
    CommitConflict
        If a commit in between contradicts one of the changes. Nothing is visible.
    CubeCommitIncomplete
        If a later dataset could not be published. The message lists the commits that landed.
    """
    cube_commit = _cube_commit(changes, bases)
    changes = {i: replace(change, cube=cube_commit) for i, change in changes.items()}
    prepared = {}
    if len(changes) > 1:  # a single change is checked by its commit
        prepared = {i: prepare_commit(store, change, bases.get(i)) for i, change in changes.items()}
    landed: dict[str, Snapshot] = {}
    for i, change in changes.items():
        with _with_progress_in_errors(uuid_prefix, i, changes, landed):
            landed[i] = commit_change(store, change, bases.get(i), prepared.pop(i, None))
    return landed


def _cube_commit(changes: Mapping[str, Change], bases: Mapping[str, Snapshot]) -> CubeCommit | None:
    """The mark by which readers recognize a partial commit; None if one dataset alone matters."""
    # An index changes no answer, so readers need not wait for it in all datasets.
    if not any(change.replace or needs_indices(change) for change in changes.values()):
        return None
    txns = {change.txn for change in changes.values()}
    txn = txns.pop() if len(txns) == 1 else None
    # A numbered write that is repeated after it stopped halfway is the same write.
    write = new_id() if txn is None else write_id(txn, [change.uuid for change in changes.values()])

    def takes_part(change: Change, base: Snapshot | None) -> bool:
        # If a different write applied the txn to the dataset, this one will skip it forever.
        if base is None or not is_applied(change.txn, base.document.metadata):
            return True
        return write in [commit.cube.id for commit in base.chain if commit.cube is not None]

    uuids = sorted(change.uuid for i, change in changes.items() if takes_part(change, bases.get(i)))
    return CubeCommit(write, tuple(uuids)) if len(uuids) > 1 else None


@contextmanager
def _with_progress_in_errors(
    uuid_prefix: str, name: str, changes: Mapping[str, Change], landed: Mapping[str, Snapshot]
) -> Iterator[None]:
    """Turn an error into `CubeCommitIncomplete` with the datasets that have landed."""
    try:
        yield
    except Exception as error:
        if not landed:
            raise
        results = {i: state.result for i, state in landed.items()}
        done = ", ".join(
            f"{i} (before, with this number)" if result is None or result.skipped else f"{i} (commit {result.id})"
            for i, result in results.items()
        )
        left = ", ".join(i for i in changes if i not in landed)
        # An undone commit keeps its txn: a repeated write would skip the dataset.
        remedy = (
            "`undo` with these commits takes back what landed"
            if changes[name].txn is None
            else "Repeat the write with the same txn, which completes it"
        )
        raise CubeCommitIncomplete(
            f"Cube {uuid_prefix!r}: the commit stopped at dataset {name!r}. "
            f"Landed: {done}. Not landed: {left}. {remedy}. Reason: {error}"
        ) from error
